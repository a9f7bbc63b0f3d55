# __init__.py imports these on first use.
from .sentences import SentenceClassifier as SentenceClassifier
from .sentences import SentenceRegressor as SentenceRegressor
