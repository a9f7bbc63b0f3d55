"""The recurrence of simple recurrent units: see the README in the parent folder."""

from .operator import linear_recurrence as linear_recurrence
from .operator import scan as scan
