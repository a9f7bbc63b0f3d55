"""Recorded runs in the plots of the papers: `python -m reproduce.plots`."""
