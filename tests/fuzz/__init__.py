"""Fuzzing of what reads files: `make fuzz`, or ``python -m tests.fuzz --minutes 10 word_vectors tables``.

A target in ``targets.py`` is a test of hypothesis: a reader returns valid data or raises an InputError of one line.
Cases that were found are kept as ``@example``; ``tests/test_fuzz.py`` runs them in `make test`.
"""
