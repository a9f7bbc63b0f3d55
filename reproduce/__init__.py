"""Reproduces the papers: tables (`python -m reproduce TABLE`), plots, the authors' TensorFlow checkpoints."""
