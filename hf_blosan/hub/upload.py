"""Uploads the output folder of a run to a model repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from ..errors import InputError

# Checkpoints and unfinished files.
NOT_UPLOADED = ("step_*", "epoch_*", ".*.tmp", ".saving-*")


def start_upload(folder: str | Path, repo_id: str | None = None, token: str | None = None) -> Callable[[str], None]:
    """Create a model repository, so that a wrong name or token is reported before training starts.

    Args:
        folder: folder to upload; gets a `.gitignore` that excludes checkpoints.
        repo_id: repository; the name of the folder by default.
        token: token for the Hub; the stored login by default.

    Returns:
        A function that uploads the folder with a given commit message.

    Raises:
        InputError: the Hub rejects the repository.
    """
    folder = Path(folder)
    api = HfApi(token=token)
    name = repo_id or folder.resolve().name
    try:
        name = api.create_repo(name, exist_ok=True).repo_id
    except (HfHubHTTPError, HFValidationError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"the Hub rejects the repository {name!r} ({reason}); check --hub_model_id and --hub_token"
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("\n".join(NOT_UPLOADED) + "\n", encoding="utf-8")

    def upload(message: str) -> None:
        ignored = [*NOT_UPLOADED, *(f"{pattern}/**" for pattern in NOT_UPLOADED)]
        api.upload_folder(repo_id=name, folder_path=folder, commit_message=message, ignore_patterns=ignored)

    return upload
