"""The vectors of large encoders, which a student learns from, kept on disk."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sklearn.decomposition import PCA
from transformers import PreTrainedTokenizerBase

from hf_blosan.files import sha256, write_bytes

logger = logging.getLogger(__name__)

SHARD = 10_000
"""Sentences of a file of vectors; an interrupted run goes on after the last complete one."""
BATCH, GPU_BATCH = 64, 1024
"""Sentences that a teacher reads at once, on the CPU and on a GPU."""
LONGEST = 96
"""Tokens of a sentence that a teacher reads."""
SCALE = 0.4
"""Root mean square of a number in the first word table, as in GloVe's."""


def load_teacher(name: str, dtype: str, device: str = "cpu") -> SentenceTransformer:
    """A sentence-transformers model, which reads ``LONGEST`` tokens of a text."""
    teacher = SentenceTransformer(name, device=device, model_kwargs={"dtype": dtype})
    teacher.max_seq_length = LONGEST
    return teacher


def teacher_vectors(name: str, dtype: str, sentences: list[str], folder: Path, device: str = "cpu") -> np.ndarray:
    """Unit vectors of a teacher, (sentences, features) in float16, from files in ``folder`` where they exist.

    Args:
        name: a sentence-transformers model: a folder or a name on the Hub.
        dtype: of the teacher's weights, for instance ``"bfloat16"``.
        sentences: texts.
        folder: is made if it is missing.
        device: of the teacher.
    """
    teacher, shards = None, []
    files = sorted(path for path in Path(name).rglob("*") if path.is_file())  # modules have folders of their own
    identity = json.dumps([Path(name).name, *map(sha256, files)]) if files else name
    for start in range(0, len(sentences), SHARD):
        texts = sentences[start : start + SHARD]
        made_from = "\n".join([identity, dtype, str(LONGEST), *texts])
        path = folder / f"{Path(name).name}-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}.npy"
        if not path.exists():
            teacher = teacher or load_teacher(name, dtype, device)
            size = BATCH if device == "cpu" else GPU_BATCH
            vectors = teacher.encode(texts, batch_size=size, normalize_embeddings=True, show_progress_bar=False)
            file = io.BytesIO()
            np.save(file, vectors.astype(np.float16))
            write_bytes(path, file.getvalue())  # two runs may share the folder
            logger.info("%s has encoded %d of %d sentences", name, start + len(texts), len(sentences))
        shards.append(np.load(path))
    return np.concatenate(shards)


def token_vectors(
    teacher: SentenceTransformer, tokenizer: PreTrainedTokenizerBase, size: int, seed: int
) -> np.ndarray:
    """A first word table (tokens, size): the teacher's vector of each token alone, by principal component analysis."""
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    texts = [token.removeprefix("##").removeprefix("▁").removeprefix("Ġ") for token in tokens]
    vectors = teacher.encode(texts, batch_size=256, show_progress_bar=False)
    reduced = PCA(min(size, *vectors.shape), random_state=seed).fit_transform(vectors).astype(np.float32)
    reduced[tokenizer.all_special_ids] = 0
    return SCALE * reduced / reduced.std()


def principal_directions(vectors: np.ndarray, size: int) -> np.ndarray:
    """The (features, size) directions, most important first, that keep most of the vectors' inner products."""
    sample = torch.from_numpy(vectors[:50_000]).float()
    return torch.linalg.eigh(sample.T @ sample)[1].flip(1)[:, :size].numpy()
