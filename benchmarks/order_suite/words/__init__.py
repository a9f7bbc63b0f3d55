"""The words of each part, in pools by what they can stand for."""
