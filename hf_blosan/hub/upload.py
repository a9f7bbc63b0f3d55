"""Uploading the output folder of a run to a model repository."""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError
from transformers import AutoModel
from transformers.utils import CONFIG_NAME

from .. import registry
from ..cli.arguments import PushArguments
from ..errors import InputError, first_line
from ..files import write_bytes

logger = logging.getLogger(__name__)

# Checkpoints and unfinished files.
NOT_UPLOADED = (
    *("step_*", "epoch_*", "checkpoint-[0-9]*"),
    *(".*.tmp", ".saving-*", ".*.partial*", ".lock", ".*.lock"),
)
WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
MODELS = Path(__file__).parents[1] / "models"
CODE = tuple(path.name for path in MODELS.glob("[!_]*.py"))
# The files that `models.heads_families` makes for heads.
OF_HEADS = tuple(f"modeling_*_{path.stem.removeprefix('heads_')}.py" for path in MODELS.glob("heads_*.py"))
# Files that other runs may have left in the repository; deleted unless uploaded again.
REPLACED = (
    *(*CODE, *OF_HEADS, "model*.safetensors", "model.safetensors.index.json"),
    *("predict_results_*.txt", "all_results.json", "onnx/model*.onnx*"),
    *("adapter_config.json", "adapter_model.*"),
)
ATTEMPTS, SECONDS_BETWEEN = 3, 5.0


class Uploads:
    """Uploads a folder to a model repository during and after training.

    The constructor creates the repository, so a wrong name or token is reported before training.

    Args:
        folder: folder to upload.
        repo_id: repository; the name of the folder by default.
        token: token for the Hub; the stored login by default.
        private: make a new repository private.
        source: what to give ``hf-blosan push`` after a failure; the folder by default.

    Attributes:
        repo_id: the full name of the repository, with its owner.

    Raises:
        InputError: the Hub rejects the repository or cannot be reached.
    """

    def __init__(
        self,
        folder: str | Path,
        repo_id: str | None = None,
        token: str | None = None,
        *,
        private: bool = False,
        source: str | None = None,
    ) -> None:
        self.folder, self.source = Path(folder), source or str(folder)
        self.api = HfApi(token=token)
        name = repo_id or self.folder.resolve().name
        try:
            # None uses the owner's default.
            self.repo_id = self.api.create_repo(name, private=private or None, exist_ok=True).repo_id
        except Exception as error:  # the HTTP client's errors share no base class with the Hub client's
            status = getattr(getattr(error, "response", None), "status_code", 500)
            if isinstance(error, HFValidationError) or status < 500:
                fault, remedy = f"the Hub rejects the repository {name!r}", "check --hub_model_id and --hub_token"
            else:
                fault = f"the Hub at {self.api.endpoint} cannot be reached"
                remedy = "check the connection and HF_HUB_OFFLINE, or do not push"
            raise InputError(f"{fault} ({reason(error)}); {remedy}") from error

    def exclude_checkpoints(self) -> None:
        """Write the folder's `.gitignore`, or add to it."""
        path = self.folder / ".gitignore"
        lines, patterns = path.read_bytes().splitlines() if path.exists() else [], map(str.encode, NOT_UPLOADED)
        lines += [pattern for pattern in patterns if pattern not in lines]
        write_bytes(path, b"\n".join([*lines, b""]))

    def upload(self, message: str) -> None:
        """Upload the folder as one commit.

        A folder without weights, for instance of ONNX graphs, adds to what is in the repository and leaves the
        configuration there, which goes with the weights there.
        """
        has_weights = any(path for pattern in WEIGHTS for path in self.folder.glob(pattern))
        kept = () if has_weights or not self.api.file_exists(self.repo_id, CONFIG_NAME) else (CONFIG_NAME,)
        self.api.upload_folder(
            repo_id=self.repo_id,
            folder_path=self.folder,
            commit_message=message,
            ignore_patterns=[*NOT_UPLOADED, *(f"{pattern}/**" for pattern in NOT_UPLOADED), *kept],
            delete_patterns=list(REPLACED) if has_weights else None,
        )

    def try_upload(self, message: str) -> None:
        """Upload the folder; if that fails, log a warning and continue training."""
        try:
            self.upload(message)
        except Exception as error:
            logger.warning("upload to %s failed (%s); training continues", self.repo_id, reason(error))

    def finish(self, message: str) -> None:
        """Upload the folder, with retries.

        Raises:
            InputError: every attempt failed.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self.upload(message)
            except Exception as error:
                if attempt == ATTEMPTS:
                    raise InputError(
                        f"the upload to {self.repo_id} failed ({reason(error)}); everything is saved in "
                        f"{self.source}; upload it with `hf-blosan push {self.source} --hub_model_id {self.repo_id}`"
                    ) from error
                logger.warning("upload to %s failed (%s); trying again", self.repo_id, reason(error))
                time.sleep(SECONDS_BETWEEN * attempt)


def push(options: PushArguments) -> None:
    """``hf-blosan push``: upload a folder as it is, creating the repository if needed.

    An encoder that comes with the package is uploaded with its code, which its folder does not contain. Raises
    InputError if there is no model in the folder, or the Hub rejects it or cannot be reached.
    """
    folder = Path(registry.locate(options.folder))
    if not (folder / CONFIG_NAME).is_file():
        raise InputError(f"no saved model in {options.folder}; give the folder of one, with its config.json")
    with TemporaryDirectory() as temporary:
        if folder.parent == registry.PRETRAINED:
            folder = shutil.copytree(folder, Path(temporary, folder.name))
            AutoModel.from_pretrained(folder).save_pretrained(folder)
        uploads = Uploads(
            folder, options.hub_model_id, options.hub_token, private=options.hub_private_repo, source=options.folder
        )
        uploads.finish(options.commit_message)
    print(f"{uploads.api.endpoint}/{uploads.repo_id}")


def reason(error: BaseException) -> str:
    """The Hub's message, otherwise the first line of the error."""
    return getattr(error, "server_message", None) or first_line(error)
