"""The papers' tables, run by one command: `python -m hf_blosan.experiments TABLE`."""
