"""What the estimators refuse, in scikit-learn's exceptions and in one sentence."""

import numpy as np
import pandas
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError
from test_estimators import classifier, pairs, questions, regressor

from hf_blosan.errors import InputError
from hf_blosan.estimators import SentenceClassifier


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"learning_rate": -1}, "^learning_rate is -1.0; it must be more than 0"),
        ({"batch_size": 2.5}, "^argument batch_size: invalid int value: '2.5'"),
        ({"num_train_epochs": 0}, "^num_train_epochs is 0"),
        ({"validation_fraction": 1.5}, "^validation_fraction is 1.5; it must be more than 0 and below 1"),
        ({"random_state": -1}, "^random_state is -1"),
        ({"encoder": "nope"}, "^unknown encoder 'nope'; choose one of disan"),
        ({"config_overrides": {"size": 1}}, "^config_overrides: disan has no field 'size'"),
        ({"options": {"train_file": "a.csv"}}, "^options has no 'train_file'; choose from backbone"),
        ({"options": {"learning_rate": 1}}, "^options has 'learning_rate'; give the parameter learning_rate"),
        ({"options": {"seed": 1}}, "^options has 'seed'; give the parameter random_state in its place"),
        ({"options": {"optimizer": "sgd"}}, r"^argument options\['optimizer'\]: invalid choice: 'sgd'"),
        ({"options": {"l2": -1}}, r"^options\['l2'\] is -1.0"),
        ({"model": "nowhere", "encoder": None}, "^no saved model at 'nowhere'"),
        ({"learning_rate": 1e30, "options": {"max_grad_norm": 0}}, r"lower learning_rate or give options\['max_grad"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    estimator = classifier().set_params(**parameters)
    with pytest.raises(InputError, match=message):
        estimator.fit(*questions(40))


@pytest.mark.parametrize(
    "X, error, message",
    [
        ("a text", TypeError, "^X is of type str; give a list of texts"),
        (7, TypeError, "^X is of type int"),
        ({"text": ["a", "b"]}, TypeError, "^X is of type dict"),
        (scipy.sparse.csr_matrix((3, 3)), TypeError, "sparse matrix"),
        ([], ValueError, r"^X has 0 sample\(s\)"),
        (["a", None], InputError, r"^X\[1\] is missing \(None\); fill empty cells, by .fillna"),
        (["a", float("nan")], InputError, r"^X\[1\] is missing \(nan\)"),
        ([b"a", b"b"], InputError, r"^X\[0\] is b'a'"),
        (np.zeros((2, 3)), InputError, r"^X\[0\] is \[0.0, 0.0, 0.0\]; give a text"),
        ([("a", "b"), "c"], InputError, r"^X\[1\] is a single text, X\[0\] is a pair of texts"),
        ([("a", "b", "c")] * 2, InputError, r"^X\[0\] is \('a', 'b', 'c'\)"),
        (
            pandas.DataFrame({"id": [1, 2], "text": ["a", "b"], "n": [3, 4]}),
            InputError,
            "^X has 3 columns; give the one",
        ),
        (["a", "\ud800"], InputError, r"^X\[1\] has an unpaired surrogate"),
        (["a", "b", "c"], ValueError, "inconsistent numbers of samples"),
        (["a"], ValueError, "inconsistent numbers of samples"),
        (["a", "b"], InputError, "^none of 2 training rows can be held out"),
    ],
)
def test_wrong_texts_are_named(X, error, message):
    with pytest.raises(error, match=message):
        classifier(validation_fraction=0.1).fit(X, ["x", "y"])


@pytest.mark.parametrize(
    "make, y, message",
    [
        (classifier, None, "requires y to be passed, but the target y is None"),
        (classifier, [1, 1, 1], "^y: every label is '1'; a classification task needs two or more classes"),
        (classifier, [0.5, 1.5, 1.25], "Unknown label type"),
        (classifier, [[1, 2], [1, 2], [1, 2]], "1d array"),
        (classifier, [np.nan, 1.0, 2.0], "y contains NaN"),
        (classifier, ["a", np.nan, "b"], "contains NaN"),
        (classifier, ["a", 1, "b"], r"^y has labels of several types \(int, str\)"),
        (classifier, ["a", "\ud800", "b"], "^y has a label with an unpaired surrogate"),
        (classifier, np.array(["a", None, "b"], dtype=object), r"^y has labels of several types \(NoneType, str\)"),
        (
            classifier,
            pandas.Series(["a", None, "b"], dtype="string"),
            "^y contains NaN or other missing values: 1; give",
        ),
        (regressor, [2, 2, 2], "^y: every score is 2; a regression task needs different scores"),
        (regressor, ["a", "b", "c"], "could not convert string to float"),
        (regressor, [1, np.inf, 2], "y contains infinity"),
        (regressor, [1, 1e20, 2], "^y, row 2: score 1e[+]20 is beyond"),
    ],
)
def test_wrong_targets_are_named(make, y, message):
    with pytest.raises(ValueError, match=message):
        make().fit(["a", "b", "c"], y)


def test_other_rows_than_those_of_the_fit():
    X, y = questions(40)
    estimator = classifier(num_train_epochs=1).fit(X, y)
    with pytest.raises(InputError, match="X has pairs of texts, but the SentenceClassifier was fitted on single te"):
        estimator.predict([("a", "b")])
    with pytest.raises(InputError, match="^y_val has the label 'plant', which y does not have"):
        classifier().fit(X, y, X[:1], ["plant"])
    with pytest.raises(InputError, match="^X_val has pairs of texts, X has single texts; give the same"):
        classifier().fit(X, y, [("a", "b")], y[:1])
    with pytest.raises(InputError, match="^y_val is given without X_val"):
        classifier().fit(X, y, y_val=y)
    with pytest.raises(NotFittedError):
        classifier().predict(X)
    with pytest.raises(
        InputError, match=r"an encoder without a head; SentenceClassifier\('disan-mini-en'\) trains one"
    ):
        SentenceClassifier.from_pretrained("disan-mini-en")


def test_columns_of_a_table_keep_their_names_and_their_order():
    X, y = pairs(40)
    table = pandas.DataFrame(X, columns=["question", "answer"])
    estimator = regressor(num_train_epochs=1.0).fit(table, y)
    assert estimator.feature_names_in_.tolist() == ["question", "answer"]
    swapped = table[["answer", "question"]]
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        estimator.predict(swapped)
    with pytest.raises(ValueError, match="feature names should match"):
        regressor().fit(table, y, swapped.rename(columns={"answer": "other"}), y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        estimator.predict(X)
    with pytest.raises(InputError, match="every score is 1"):
        estimator.fit(table.rename(columns={"answer": "other"}), [1] * len(y))
    assert estimator.predict(table).shape == (40,)  # what was fitted before stays
    assert not hasattr(estimator.fit(X, y), "feature_names_in_")


def test_texts_after_a_table_of_one_column():
    X, y = questions(40)
    table = pandas.DataFrame({"question": X})
    estimator = classifier(num_train_epochs=1).fit(table, y, table, y)
    for texts in (X, pandas.Series(X)):
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            assert len(estimator.predict(texts)) == 40
    for _ in range(2):
        assert len(estimator.fit(X, y, X[:4], y[:4]).predict(X)) == 40
    with pytest.raises(NotFittedError):
        classifier().save_pretrained("out")
