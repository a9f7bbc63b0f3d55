"""MTSA in place of multi-head attention in PyTorch's own Transformer encoder.

    python examples/transformer_with_mtsa.py

The task depends on word order alone: is the first of two marked tokens the smaller one? The networks are the same
``nn.TransformerEncoder``, without position embeddings, and differ in ``self_attn``. Multi-head attention cannot know
the order of its tokens and guesses; the heads of MTSA see either the tokens before or those after, so it learns it.

Takes a few seconds on a CPU core.
"""

import argparse

import torch
from torch import nn

from hf_blosan.modules import MultiheadTensorizedAttention

NUM_WORDS, LENGTH, SIZE, HEADS = 10, 8, 32, 4


def rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (count, LENGTH), two of them marked (ids from NUM_WORDS on), and whether the marked ones ascend."""
    ids = torch.randint(NUM_WORDS, (count, LENGTH))
    places = torch.rand(count, LENGTH).argsort(1)[:, :2].sort(1).values
    marked = torch.rand(count, NUM_WORDS).argsort(1)[:, :2]
    return ids.scatter(1, places, NUM_WORDS + marked), (marked[:, 0] < marked[:, 1]).long()


class Classifier(nn.Module):
    """Embedding, Transformer encoder, mean over tokens, linear layer."""

    def __init__(self, attention: nn.Module | None):
        super().__init__()
        self.embedding = nn.Embedding(2 * NUM_WORDS, SIZE)
        layer = nn.TransformerEncoderLayer(SIZE, HEADS, dim_feedforward=2 * SIZE, dropout=0.0, batch_first=True)
        if attention is not None:
            layer.self_attn = attention
        self.encoder = nn.TransformerEncoder(layer, num_layers=1, enable_nested_tensor=False)
        self.output = nn.Linear(SIZE, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.output(self.encoder(self.embedding(ids)).mean(1))


def accuracy_after(steps: int, attention: nn.Module | None) -> float:
    """Accuracy on new rows after that many updates of 64 rows."""
    model = Classifier(attention)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        ids, labels = rows(64)
        loss = nn.functional.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids, labels = rows(2000)
    with torch.no_grad():
        return (model.eval()(ids).argmax(1) == labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    # Tensors of this size do not benefit from a second thread.
    torch.set_num_threads(1)
    for name in ("multi-head attention", "MTSA"):
        torch.manual_seed(0)
        attention = MultiheadTensorizedAttention(SIZE, HEADS) if name == "MTSA" else None
        print(f"{name:<22} accuracy {accuracy_after(steps, attention):.3f}")


if __name__ == "__main__":
    main()
