"""The server around a model of sentence-transformers: `python -m benchmarks.serving_peer FOLDER --port PORT`."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_blosan.cli.options import Parser, exit_status
from hf_blosan.hub.saved import load
from hf_blosan.serving.arguments import ServeArguments
from hf_blosan.serving.command import run

from .encode import mean_pooled, without_modules


class MeanPooled(nn.Module):
    """An encoder whose sentence vectors are the means of its tokens, where the server looks for them."""

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.model, self.config, self.device = model, model.config, model.device

    def forward(self, attention_mask: Tensor, **inputs: Tensor) -> SimpleNamespace:
        output = self.model(attention_mask=attention_mask, **inputs)
        return SimpleNamespace(pooler_output=mean_pooled(output, attention_mask))


def serve(argv: list[str] | None) -> None:
    """Serve the model."""
    arguments = Parser(prog="python -m benchmarks.serving_peer", description=__doc__).read(ServeArguments, argv)

    def load_model():
        model, tokenizer = load(arguments.model, "feature-extraction", cpu=True)
        return MeanPooled(without_modules(model)), tokenizer

    run(arguments, load_model)


if __name__ == "__main__":
    sys.exit(exit_status(serve, None))
