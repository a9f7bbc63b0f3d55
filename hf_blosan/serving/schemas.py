"""Requests and answers of the Hub's inference API, as pydantic models, with one-sentence error messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt, create_model, model_validator
from pydantic_core import PydanticCustomError

from ..hub.configs import saved_labels
from ..tasks.classification import probabilities_of

TEXT, PAIR = "a text", '{"text": ..., "text_pair": ...}'


def check_unicode(text: str) -> str:
    """Raises UnicodeEncodeError for unpaired surrogates (``\\ud800``), which JSON can contain and UTF-8 cannot."""
    text.encode()
    return text


Text = Annotated[str, AfterValidator(check_unicode)]


class Body(BaseModel):
    """A JSON object without unknown names."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def check_names(cls, value: Any) -> Any:
        """Stops at the first unknown name; pydantic would report every one."""
        unknown = next((name for name in value if name not in cls.model_fields), None) if type(value) is dict else None
        if unknown is not None:
            shown = ascii(unknown)[1:-1][:80]  # of any characters and length
            required = (name for name, field in cls.model_fields.items() if field.is_required())
            missing = next((name for name in required if name not in value), None)
            context = {"name": shown, "remedy": f"{missing} is missing" if missing else "leave it out"}
            raise PydanticCustomError("unknown_name", "the name {name} is unknown here; {remedy}", context)
        return value


class Pair(Body):
    """Two texts that the model compares."""

    text: Text
    text_pair: Text


class ClassificationParameters(Body):
    """Options of a text classification."""

    top_k: Annotated[StrictInt, Field(ge=1)] | None = Field(None, description="Number of best labels to return.")
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = Field(
        None, description="Function from logits to scores. Default: the model's."
    )
    truncate: StrictBool | None = Field(None, description="Shorten texts that are too long.")


class Label(BaseModel):
    """A label and its probability, or the score of a regression."""

    label: str
    score: float


class Error(BaseModel):
    """The reason for an error."""

    error: str


class Classification:
    """Labels with probabilities, or scores: ``[[{"label": ..., "score": ...}, ...], ...]``, one list for each text."""

    name = "text-classification"
    answer = list[list[Label]]
    fields = {"parameters": (ClassificationParameters | None, None)}

    def truncates(self, body: Any) -> bool:
        return bool(body.parameters and body.parameters.truncate)

    def encode(self, config: Any, body: Any, logits: np.ndarray) -> bytes:
        """The answer as JSON, from logits (texts, labels) of the model with that configuration."""
        parameters, labels = body.parameters or ClassificationParameters(), saved_labels(config)
        scores = probabilities_of(config, logits, parameters.function_to_apply)
        scores = logits if scores is None else scores
        best = (-scores).argsort(axis=1, kind="stable")[:, : parameters.top_k]
        answers = [
            [{"label": labels[i], "score": float(row[i])} for i in order]
            for row, order in zip(scores, best, strict=True)
        ]
        return orjson.dumps(answers)


class Embedding:
    """Sentence vectors: ``[[0.1, ...], ...]``, one for each text."""

    name = "feature-extraction"
    answer = list[list[float]]
    fields = {
        "normalize": (StrictBool | None, Field(None, description="Scale vectors to length 1.")),
        "truncate": (StrictBool | None, Field(None, description="Shorten texts that are too long.")),
    }

    def truncates(self, body: Any) -> bool:
        return bool(body.truncate)

    def encode(self, config: Any, body: Any, vectors: np.ndarray) -> bytes:
        """The answer as JSON, from vectors (texts, width)."""
        if body.normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return orjson.dumps(vectors, option=orjson.OPT_SERIALIZE_NUMPY)


ANSWERS = {answer.name: answer for answer in (Classification(), Embedding())}
"""The answer types, by the model's pipeline."""


def request_model(task: Classification | Embedding, *, pairs: bool, max_texts: int) -> type[Body]:
    """The model of a request; ``max_texts`` only appears in the description and is not checked."""
    one = Pair if pairs else Text
    # Without fail_fast, a megabyte of numbers instead of texts gives half a million messages.
    length = Field(min_length=1, fail_fast=True, json_schema_extra={"maxItems": max_texts})
    several = Annotated[list[one], length]
    return create_model("Request", __base__=Body, inputs=(one | several, ...), **task.fields)


def texts_of(inputs: Any) -> list[tuple[str, ...]]:
    """The texts of a request, one tuple for each text or pair."""
    several = inputs if isinstance(inputs, list) else [inputs]
    return [(one,) if isinstance(one, str) else (one.text, one.text_pair) for one in several]


def mistake(errors: Sequence[Any], *, pairs: bool) -> str:
    """What is wrong with a request, from pydantic's errors, in one sentence."""
    error = errors[0]
    where, kind = error["loc"][1:], error["type"]
    if kind == "json_invalid":
        return f"the request is not valid JSON ({error['ctx']['error']} at character {where[0]}); correct it"
    if kind == "unknown_name":
        return error["msg"]
    if not where:
        return "the request is not a JSON object with the header Content-Type: application/json; send one"
    if where[0] == "inputs":
        one = PAIR if pairs else TEXT
        several = f"a list of one or more {'of these' if pairs else 'texts'}"
        return f"inputs must be {one} or {several}, in Unicode; correct it"
    return f"{'.'.join(map(str, where))}: {error['msg'][0].lower()}{error['msg'][1:]}"
