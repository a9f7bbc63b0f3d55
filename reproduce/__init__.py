"""The papers again: their tables (`python -m reproduce TABLE`), their plots, the authors' TensorFlow checkpoints."""
