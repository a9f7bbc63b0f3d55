"""The commands that hand their options to functions of other parts of the package."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from .arguments import ExportArguments, PushArguments


def export(options: ExportArguments) -> int:
    """Write a model as an ONNX graph."""
    from ..export import export as function

    print(function(options.model, options.output))
    return 0


def push(options: PushArguments) -> int:
    """Upload a folder; the repository is made if there is none.

    Raises:
        InputError: there is no model in the folder, or the Hub rejects it or cannot be reached.
    """
    from ..hub import Uploads

    folder = Path(options.folder)
    if not (folder / "config.json").is_file():
        raise InputError(f"no saved model in {options.folder}; give the folder of one, with its config.json")
    uploads = Uploads(folder, options.hub_model_id, options.hub_token, private=options.hub_private_repo)
    uploads.finish(options.commit_message)
    print(f"{uploads.api.endpoint}/{uploads.repo_id}")
    return 0
