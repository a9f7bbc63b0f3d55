"""The command `hf-blosan`."""
