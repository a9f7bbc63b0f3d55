"""``hf-blosan demo``: a web page that explains models' predictions for a sentence or a pair."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import InputError, require
from ..hub import model_card
from ..hub.saved import load
from ..registry import encoder_name
from .arguments import DemoArguments
from .explanation import Explanation, draw, explain, num_sentences

QUESTIONS = ["Who wrote Hamlet ?", "How far is it from Denver to Aspen ?", "What does the acronym NASA stand for ?"]
OPINIONS = [
    "The plot is thin , but the actors save the film .",
    "It is not a bad film at all .",
    "A film with everything but a story .",
]
PAIRS = [
    ["A man is playing a guitar .", "A man is not playing a guitar ."],
    ["A dog is chasing a man .", "A man is chasing a dog ."],
    ["Two children play in the park .", "Some kids are outside ."],
]
DEMO_PAIRS = [[row["text"], row["text_pair"]] for row in model_card.GENERATED_EXAMPLES]
EXAMPLES = {
    "trec": QUESTIONS,
    "trec_fine": QUESTIONS,
    "demo": DEMO_PAIRS,
    "demo_relatedness": DEMO_PAIRS,
    **dict.fromkeys(("sst2", "sst5", "glue_sst2", "mr", "cr"), OPINIONS),
}
"""Example inputs by the task of the model."""
OTHER_EXAMPLES = {1: [QUESTIONS[0], *OPINIONS[:2]], 2: PAIRS}
"""Example inputs for all other tasks, by number of sentences."""

HOW_TO_READ = """
- **Attention**: a row is a query, a column a key; the weights of a row sum to 1. Grey is hidden: *forward* attends to
  earlier tokens, *backward* to later ones, and a row that is all grey to none.
- **Gates** weigh a token's own vector against its context.
- **Sentence vector**: how much each token contributes to it. The dashed line is an equal share.

All values are means over the features, each of which has its own weights in DiSAN, Bi-BloSAN and MTSA.
"""
WHAT_IT_SHOWS = """
{type}, and see {prediction}which tokens attend to which, and how much each token contributes to its sentence vector.
An example is filled in; others are below.{labels}
"""
WHAT_LABELS_MEAN = """ *Entailment*: if the first sentence is true, so is the second. *Contradiction*: the second is
then false. *Neutral*: it may be either.
"""
CSS = """
.figures {display: flex; flex-wrap: wrap; gap: 1rem}
.figures section {flex: 1 1 400px; min-width: 0}
.figures img {max-width: 100%; height: auto; margin: 0.4rem 0; background: white}
.figures h4 {margin: 0.8rem 0 0}
"""


@dataclass(frozen=True)
class Shown:
    """A model of the page."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @property
    def title(self) -> str:
        """Name and encoder."""
        return f"{self.name} ({encoder_name(self.model.config.model_type)})"

    @property
    def has_head(self) -> bool:
        return hasattr(self.model, "classifier")

    def answer(self, texts: Sequence[str], *, columns: int = 2) -> tuple[dict[str, float] | str, str]:
        """Prediction and figures for a label and an HTML component; raises InputError if a text cannot be used."""
        explanation = explain(self.model, self.tokenizer, *texts)
        score = "" if explanation.score is None else f"{explanation.score:.2f}"
        return explanation.probabilities or score, figures_html(explanation, columns)


def figures_html(explanation: Explanation, columns: int) -> str:
    """The figures as images, the two sentences of a pair side by side."""
    pair = len(explanation.sentences) > 1
    sections = [f"<h4>{html.escape(sentence.text)}</h4>" if pair else "" for sentence in explanation.sentences]
    for name, figure in explanation.figures(columns=columns).items():
        number, _, kind = name.removeprefix("sentence").partition("_")
        content = base64.b64encode(draw(figure, "svg")).decode()
        image = f'<img alt="{kind} of sentence {number}" src="data:image/svg+xml;base64,{content}">'
        sections[int(number) - 1] += image
    content = "".join(f"<section>{section}</section>" for section in sections)
    return f'<div class="figures">{content}</div><p>{html.escape(explanation.note)}</p>'


def make_page(models: Sequence[Shown]) -> Any:
    """The page, a ``gradio.Blocks``, with the models side by side.

    Raises:
        InputError: Gradio is not installed, or one model takes a sentence and another a pair.
    """
    counts = {num_sentences(shown.model) for shown in models}
    if len(counts) > 1:
        one, two = (next(s.name for s in models if num_sentences(s.model) == count) for count in (1, 2))
        raise InputError(f"{one} takes one sentence and {two} compares two; give two models of the same kind")
    (count,) = counts
    gradio, columns = import_gradio(), 2 if count == len(models) == 1 else 1

    def answer(*texts: str):
        try:
            values = [value for shown in models for value in shown.answer(texts, columns=columns)]
        except InputError as error:
            text = f"<strong>{html.escape(str(error))}</strong>"
            return gradio.update(value=text, visible=True), *[None] * len(results)
        return gradio.update(visible=False), *values

    examples = examples_for(models[0].model)
    names = ["Sentence"] if count == 1 else ["First sentence", "Second sentence"]
    # On a phone two boxes of this width do not fit side by side and are stacked.
    boxes = [
        gradio.Textbox(label=name, value=text, min_width=320, elem_id=f"text{number}", render=False)
        for number, (name, text) in enumerate(zip(names, examples[0], strict=True), 1)
    ]
    message = gradio.Markdown(visible=False, elem_id="message", render=False)
    results = []
    for number, shown in enumerate(models, 1):
        label = f"{shown.name}: {'prediction' if shown.has_head else 'no prediction (an encoder)'}"
        results.append(gradio.Label(label=label, num_top_classes=5, elem_id=f"prediction{number}", render=False))
        results.append(gradio.HTML(elem_id=f"figures{number}", render=False))
    event = {"fn": answer, "inputs": boxes, "outputs": [message, *results]}

    with gradio.Blocks(title="hf_blosan", analytics_enabled=False) as page:
        gradio.Markdown(f"## {' and '.join(shown.title for shown in models)}")
        gradio.Markdown(what_it_shows(models), elem_id="explanation")
        with gradio.Row():
            for box in boxes:
                box.render()
        button = gradio.Button("Show", variant="primary", elem_id="show")
        gradio.Examples(examples, **event, run_on_click=True, cache_examples=False)
        message.render()
        with gradio.Row():
            for prediction, figures in zip(results[::2], results[1::2], strict=True):
                with gradio.Column(min_width=360):
                    prediction.render()
                    figures.render()
        with gradio.Accordion("How to read the figures", open=False):
            gradio.Markdown(HOW_TO_READ)
        for submitted in (page.load, button.click, *(box.submit for box in boxes)):
            submitted(**event, api_visibility="private")
    return page


def what_it_shows(models: Sequence[Shown]) -> str:
    """An introduction in Markdown."""
    labels = {label.lower() for shown in models if shown.has_head for label in shown.model.config.id2label.values()}
    return WHAT_IT_SHOWS.format(
        type="Type a sentence" if num_sentences(models[0].model) == 1 else "Type two sentences",
        prediction="the prediction, " if any(shown.has_head for shown in models) else "",
        labels=WHAT_LABELS_MEAN if {"entailment", "contradiction"} <= labels else "",
    ).strip()


def examples_for(model: PreTrainedModel) -> list[list[str]]:
    """Rows of example texts."""
    count = num_sentences(model)
    rows = EXAMPLES.get(getattr(model.config, "finetuning_task", None) or "", OTHER_EXAMPLES[count])
    return [([row] if isinstance(row, str) else row)[:count] for row in rows]


def import_gradio() -> Any:
    """Gradio with its telemetry off; raises InputError if it is not installed."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    require("the page needs", "demo", "gradio")
    import gradio

    return gradio


def demo(arguments: DemoArguments) -> None:
    """Serve the page until it is interrupted; raises InputError if a model cannot be used, Gradio is not installed, or
    the address or port cannot be used.
    """
    options = {"cpu": arguments.cpu, "trust_remote_code": arguments.trust_remote_code}
    names = [name for name in (arguments.model, arguments.model2) if name]
    models = [Shown(Path(name).name, *load(name, None, **options)) for name in names]
    page = make_page(models)
    gradio = import_gradio()
    # System fonts: the default theme serves its own, other themes load theirs from Google.
    theme = gradio.themes.Default(
        primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
    )
    settings = {"share": False, "run_history": False, "ssr_mode": False, "footer_links": [], "quiet": True}
    settings |= {"theme": theme, "css": CSS, "prevent_thread_lock": True}
    try:
        _, url, _ = page.launch(server_name=arguments.host, server_port=arguments.port, **settings)
    except OSError as error:
        place = arguments.host if arguments.port is None else f"{arguments.host}:{arguments.port}"
        raise InputError(f"cannot listen on {place} ({error}); give another --host or --port") from error
    print(f"{url} (Ctrl-C to stop)", flush=True)
    page.block_thread()
