"""Speed and memory of the context layers against their peers: see README.md in this folder."""
