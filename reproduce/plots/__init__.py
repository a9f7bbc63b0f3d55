"""Recorded runs in the plots of the papers: `python -m reproduce.plots`."""

from .command import main

__all__ = ["main"]
