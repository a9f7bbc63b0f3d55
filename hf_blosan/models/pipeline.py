"""A transformers pipeline from texts to sentence vectors."""

import torch
from torch import Tensor
from transformers import Pipeline


class SentenceEmbeddingPipeline(Pipeline):
    """``pipeline("sentence-embedding", model=...)``: texts -> sentence vectors, the encoder's ``pooler_output``.

    A text gives a list of ``hidden_size`` numbers, a list of texts a list of such lists.

    Args:
        normalize: scale every vector to length 1, for cosine similarities by dot products. Default: ``False``.
        return_tensors: give tensors of shape (hidden_size,) in place of lists. Default: ``False``.
        truncation: cut texts to the tokenizer's ``model_max_length``. Default: ``True``.
        max_length: number of tokens to cut texts to instead.
    """

    _load_processor = _load_image_processor = _load_feature_extractor = False
    _load_tokenizer = True

    def _sanitize_parameters(self, truncation=None, max_length=None, normalize=None, return_tensors=None):
        before = {"truncation": truncation, "max_length": max_length}
        after = {"normalize": normalize, "return_tensors": return_tensors}
        before, after = ({k: value for k, value in given.items() if value is not None} for given in (before, after))
        return before, {}, after

    def preprocess(self, text: str, truncation: bool = True, max_length: int | None = None) -> dict[str, Tensor]:
        return self.tokenizer(text, truncation=truncation, max_length=max_length, return_tensors="pt")

    def _forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"vectors": self.model.base_model(**inputs).pooler_output}

    def postprocess(self, outputs: dict[str, Tensor], normalize: bool = False, return_tensors: bool = False):
        vector = outputs["vectors"][0].float()
        vector = torch.nn.functional.normalize(vector, dim=0) if normalize else vector
        return vector if return_tensors else vector.tolist()
