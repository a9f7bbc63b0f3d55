"""A classifier and a regressor of sentences and pairs of sentences with scikit-learn's interface."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names, check_is_fitted
from typing_extensions import Self

from ..cli.overrides import format_config_overrides
from ..data.batching import token_limit
from ..data.columns import label_text
from ..errors import InputError
from ..files import check_writable
from ..hub.configs import has_head, saved_labels
from ..hub.finite import NotFinite, refuse_not_finite
from ..hub.saved import load, quiet_transformers
from ..inference.batches import Batches
from ..tasks.classification import probabilities_of
from ..tasks.kinds import kind_class, kind_of
from ..training.checkpoints import save_pretrained
from . import fitting
from .rows import make_task, read_labels, read_rows, read_scores, read_texts

OPTIONS = {
    "encoder": "encoder",
    "model_name_or_path": "model",
    "num_train_epochs": "num_train_epochs",
    "per_device_train_batch_size": "batch_size",
    "learning_rate": "learning_rate",
    "max_length": "max_length",
    "validation_fraction": "validation_fraction",
    "early_stopping_patience": "early_stopping_patience",
    "config_overrides": "config_overrides",
    "seed": "random_state",
    "cpu": "cpu",
}
"""Options of the training command -> the parameters that set them."""

STARTS = ("encoder", "model_name_or_path")
"""A run has one of these options."""

START = "disan-mini-en-similarity"
"""The encoder that training starts from unless a parameter says otherwise."""

ROWS_AT_ONCE = 128
"""Rows per batch in prediction."""


class SentenceEstimator(BaseEstimator):
    """What the classifier and the regressor share."""

    kind: ClassVar[str]

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        encoder: str | None = None,
        num_train_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        max_length: int = 256,
        validation_fraction: float | None = None,
        early_stopping_patience: int | None = None,
        config_overrides: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = 42,
        cpu: bool = False,
        verbose: bool = False,
    ):
        self.model = model
        self.encoder = encoder
        self.num_train_epochs = num_train_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_length = max_length
        self.validation_fraction = validation_fraction
        self.early_stopping_patience = early_stopping_patience
        self.config_overrides = config_overrides
        self.options = options
        self.random_state = random_state
        self.cpu = cpu
        self.verbose = verbose

    @classmethod
    def from_pretrained(cls, model: str | os.PathLike[str], **parameters: Any) -> Self:
        """A fitted estimator around a model that `save_pretrained` or the training command saved.

        Args:
            model: a folder, or a name on the Hub.
            parameters: the estimator's, for instance ``cpu=True``; `max_length` defaults to the tokenizer's.

        Raises:
            InputError: there is no model, or it is not of the estimator's kind.
        """
        found, name = cls(model, **parameters), os.fspath(model)
        found.model_, found.tokenizer_ = load(name, cpu=found.cpu)
        found.max_length = token_limit(found.tokenizer_, parameters.get("max_length"))
        config = found.model_.config
        kind = kind_of(config)
        if not has_head(config) or type(kind) is not kind_class(cls.kind):
            remedy = (
                f"give one that {cls.__name__} saved" if has_head(config) else f"{cls.__name__}({name!r}) trains one"
            )
            what = f"is not of the kind {cls.kind}" if has_head(config) else "is an encoder without a head"
            raise InputError(f"the model at {name!r} {what}; {remedy}")
        if config.problem_type == "multi_label_classification":
            raise InputError(
                f"the model at {name!r} gives a row several labels, an estimator one; predict with hf-blosan predict, "
                "whose --probabilities are those of every label"
            )
        found.n_features_in_, found.history_ = kind.task.num_sentences, []
        return found

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Save model and tokenizer in a folder, as the training command does.

        transformers' Auto classes load them, and the commands take the folder.

        Raises:
            sklearn.exceptions.NotFittedError: the estimator is not fitted.
            InputError: the folder cannot be written.
        """
        check_is_fitted(self)
        check_writable("the folder", folder, folder=True)
        with quiet_transformers():
            save_pretrained(self.model_, self.tokenizer_, Path(folder))

    def _names_of(self, X: Any, X_val: Any) -> dict[str, np.ndarray]:
        """The names of a table's columns, as an attribute; raises ValueError if the validation rows have others."""
        seen = clone(self)
        _check_feature_names(seen, X, reset=True)
        if X_val is not None:
            _check_feature_names(seen, X_val, reset=False)
        return {name: value for name, value in vars(seen).items() if name == "feature_names_in_"}

    def _fit(
        self, rows: dict[str, tuple[Any, np.ndarray]], names: dict[str, np.ndarray], classes: np.ndarray | None = None
    ) -> None:
        """Train on texts and targets, by split; ``names`` is from :meth:`_names_of`."""
        if len(rows["train"][0]) < 2:
            raise InputError("X has 1 sample; give two texts or more")
        task = make_task(self.kind, rows, classes)
        if "validation" not in rows and self.validation_fraction is None:
            if self.early_stopping_patience:
                raise InputError(
                    f"early_stopping_patience={self.early_stopping_patience} needs rows to evaluate on; give "
                    "validation_fraction, or validation rows to fit"
                )
            task = replace(task, evaluation_splits=())
        if self.model is not None and self.encoder is not None:
            raise InputError(
                f"model={self.model!r} starts from a trained encoder, encoder={self.encoder!r} from scratch; give one"
            )
        if not isinstance(self.options, Mapping | None):
            raise InputError(f"options is {self.options!r}; give a dictionary of names and values")
        for name in self.options or {}:
            if name in OPTIONS:
                raise InputError(f"options has {name!r}; give the parameter {OPTIONS[name]} in its place")
        start = {"encoder": self.encoder} if self.encoder else {"model_name_or_path": os.fspath(self.model or START)}
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31)
        given = {option: getattr(self, name) for option, name in OPTIONS.items() if option not in STARTS} | start
        fields = self.config_overrides or {}
        fields = fields if isinstance(fields, str) else format_config_overrides(fields)
        given |= {"seed": seed, "config_overrides": fields or None}
        with fitting.named(OPTIONS):
            fitted = fitting.fit(given, self.options or {}, task, verbose=bool(self.verbose))
        self.model_, self.tokenizer_, self.history_ = fitted
        refuse_not_finite(self.model_)
        self.n_features_in_ = task.num_sentences
        vars(self).pop("feature_names_in_", None)
        vars(self).update(names)

    def _answers(self, X: Any) -> np.ndarray:
        """The model's answers for texts, (rows, classes) or (rows, 1)."""
        check_is_fitted(self)
        items = read_texts(X)
        if hasattr(self, "feature_names_in_"):
            _check_feature_names(self, X, reset=False)
        if len(items[0]) != self.n_features_in_:
            what = ("single texts", "pairs of texts")
            given, wanted = what[len(items[0]) - 1], what[self.n_features_in_ - 1]
            raise InputError(f"X has {given}, but the {type(self).__name__} was fitted on {wanted}; give {wanted}")
        kind = kind_of(self.model_.config)
        options = {"batch_size": ROWS_AT_ONCE, "max_length": self.max_length}
        with fitting.named(OPTIONS):
            batches = Batches(self.model_, self.tokenizer_, kind, **options)
        try:
            answers = np.stack(batches(items))
        except NotFinite as error:
            raise error.at(f"X[{error.of(len(items))}]") from error
        batches.report("max_length")
        return answers

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "model_" in state and state["model_"].device.type != "cpu":
            state = state | {"model_": deepcopy(state["model_"]).cpu()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model_" in state and not self.cpu:
            self.model_.to(torch.accelerator.current_accelerator(check_available=True) or "cpu")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


class SentenceClassifier(ClassifierMixin, SentenceEstimator):
    """Classifies texts, or pairs of texts.

    It trains with the code of ``hf-blosan train``: the same rows, options and seed give the same weights. Options
    without a parameter here, and parameters that are None, take the values the command would use.

    Args:
        model: an encoder to start from: the name of a bundled one, a folder, or a name on the Hub. None:
            ``"disan-mini-en-similarity"``, unless `encoder` is given.
        encoder: ``"disan"``, ``"biblosan"``, ``"mtsa"``, ..., trained from scratch, with a vocabulary of the words of
            the training texts.
        num_train_epochs: maximum number of epochs.
        batch_size: rows per training batch.
        learning_rate: learning rate of the layers, and of the word vectors of a new model.
        max_length: truncate rows to this many tokens; a pair counts both texts together.
        validation_fraction: fraction of the rows to hold out, on which the best epoch is chosen and training stops
            early; None: train on all rows for all epochs, and keep the last weights.
        early_stopping_patience: stop after this many evaluations of the held-out rows, one per epoch, without
            improvement; 0: never. None: as many as take 3 epochs and at least 100 updates.
        config_overrides: fields of the model's configuration, for instance ``{"dropout": 0.3}``.
        options: further model and optimisation options of the command, for instance
            ``{"word_vectors": "vectors.txt", "label_smoothing": 0.0}``.
        random_state: the command's seed, or the generator to draw it from.
        cpu: use the CPU even if an accelerator is available.
        verbose: print a line per epoch.

    Attributes:
        classes_: the labels, (classes,), sorted.
        model_, tokenizer_: transformers' model and tokenizer.
        history_: a dictionary for each evaluation: step, epoch, seconds, whether it was the best, and the figures on
            the validation rows.
        n_features_in_: texts per row, 1 or 2.
    """

    kind = "classification"

    @classmethod
    def from_pretrained(cls, model: str | os.PathLike[str], **parameters: Any) -> Self:
        """A fitted classifier, as in :meth:`SentenceEstimator.from_pretrained`.

        ``classes_`` holds the names of the labels, as strings, in the model's order.
        """
        found = super().from_pretrained(model, **parameters)
        found.classes_ = np.array(saved_labels(found.model_.config))
        return found

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> SentenceClassifier:
        """Train.

        Args:
            X: texts, (n,), or pairs of texts: tuples, or a table (n, 2).
            y: their labels, (n,): strings, integers or booleans.
            X_val, y_val: validation rows, in place of `validation_fraction`.

        Raises:
            ValueError: X or y cannot be used, a parameter is out of range, or training diverges.
            TypeError: X is not a sequence.
        """
        rows, names = read_rows(X, y, X_val, y_val, read_labels), self._names_of(X, X_val)
        classes = np.unique(rows["train"][1])
        for split, (items, labels) in rows.items():
            rows[split] = items, _positions(labels, classes)
        self._fit(rows, names, classes)
        self.classes_ = classes
        return self

    def _answers(self, X: Any) -> np.ndarray:
        """In the order of ``classes_``, which a model that training started from need not have."""
        answers, names = super()._answers(X), saved_labels(self.model_.config)
        return answers[:, [names.index(label_text(label)) for label in self.classes_.tolist()]]

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each text or pair, (n,), of the type that `y` had.

        Raises:
            ValueError, TypeError: X cannot be used.
        """
        best = self._answers(X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities of the classes, (n, classes), in the order of ``classes_``; raises as `predict`."""
        answers = self._answers(X).astype(np.float64)
        return probabilities_of(self.model_.config, answers)


class SentenceRegressor(RegressorMixin, SentenceEstimator):
    """Predicts a score for texts, or for pairs of texts.

    Pairs get the papers' head for relatedness, whose scores stay within the range it was fitted on. Parameters and
    attributes are the same as for :class:`SentenceClassifier`, without ``classes_``.
    """

    kind = "regression"

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> SentenceRegressor:
        """Train; arguments and errors as in :meth:`SentenceClassifier.fit`, with numbers for `y`."""
        self._fit(read_rows(X, y, X_val, y_val, read_scores), self._names_of(X, X_val))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The score of each text or pair, (n,); raises as :meth:`SentenceClassifier.predict`."""
        return self._answers(X)[:, 0].astype(np.float64)


def _positions(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Class ids, (n,); raises InputError for a label that is not a class."""
    known = np.isin(labels, classes)
    if not known.all():
        raise InputError(
            f"y_val has the label {labels[~known].tolist()[0]!r}, which y does not have; leave it out, or give "
            "such rows in X, too"
        )
    return np.searchsorted(classes, labels)
