"""Predictions and sentence vectors for files of any size, and the speed of a saved model."""
