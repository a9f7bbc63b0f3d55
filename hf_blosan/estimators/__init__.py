"""Training and prediction with scikit-learn's interface: ``SentenceClassifier`` and ``SentenceRegressor``.

Both are imported on first use and need the extra `train`.
"""

from ..registry import attach

_get, __dir__, __all__ = attach(__name__, __file__)


def __getattr__(name: str):
    if name in __all__:
        from ..training import check_extra

        check_extra()
    return _get(name)
