"""How the encoder that comes with the package is made: ``python -m pretraining --help``. Not part of the wheel."""
