"""How the encoders that come with the package are made: ``python -m pretraining --help``. Not part of the wheel."""
