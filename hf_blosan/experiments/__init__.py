"""The papers' tables and the command that runs them: `python -m hf_blosan.experiments TABLE`."""
