"""Speed and memory of the context layers beside those of their peers: see README.md in this folder."""
