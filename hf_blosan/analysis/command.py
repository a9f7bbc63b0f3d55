"""``hf-blosan explain``."""

from __future__ import annotations

from ..hub.saved import load
from .arguments import ExplainArguments
from .explanation import Explanation, Sentence, explain
from .maps import IN_SENTENCE

BAR_WIDTH = 30


def explain_text(arguments: ExplainArguments) -> None:
    """Print the prediction and the tokens with the largest weights; write figures and arrays. Raises InputError if the
    model or the texts cannot be used, or the files cannot be written.
    """
    model, tokenizer = load(arguments.model, None, cpu=arguments.cpu, trust_remote_code=arguments.trust_remote_code)
    explanation = explain(model, tokenizer, arguments.text, arguments.pair, max_tokens=arguments.max_tokens)
    files = []
    if arguments.output_dir:
        files = explanation.save(arguments.output_dir, figure_format=arguments.figure_format)
    print(report(explanation, arguments.top_tokens), *(f"wrote {path}" for path in files), sep="\n")


def report(explanation: Explanation, top_tokens: int) -> str:
    """Prediction and tokens as plain text."""
    parts = [prediction_line(explanation), *(table(sentence, top_tokens) for sentence in explanation.sentences)]
    return "\n\n".join([*parts, explanation.note] if explanation.note else parts)


def prediction_line(explanation: Explanation) -> str:
    """The five most probable labels with their probabilities, or the score."""
    if explanation.probabilities is not None:
        best = list(explanation.probabilities.items())[:5]
        return "prediction: " + ", ".join(f"{label} {probability:.3f}" for label, probability in best)
    if explanation.score is not None:
        return f"predicted score: {explanation.score:.3f}"
    return "no prediction: the encoder has no head"


def table(sentence: Sentence, top_tokens: int) -> str:
    """The tokens with the largest weights, in order of weight."""
    weights, tokens = sentence.weights, sentence.tokens
    order = weights.argsort(kind="stable")[::-1][:top_tokens]
    pooling = sentence.pooling
    what = pooling.title if pooling.meaning == IN_SENTENCE else f"{pooling.title}: {pooling.meaning}"
    width = max(len("token"), *(len(tokens[i]) for i in order))
    lines = [sentence.text, f"{'place':>5}  {'token':<{width}}  weight ({what})"]
    scale = BAR_WIDTH / max(float(weights.max()), 1e-9)
    lines += [f"{i + 1:>5}  {tokens[i]:<{width}}  {weights[i]:.3f} {'#' * round(scale * weights[i])}" for i in order]
    left_out = len(tokens) - len(order)
    return "\n".join([*lines, f"       {left_out} more tokens"] if left_out else lines)
