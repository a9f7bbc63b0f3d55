"""The templates of each part, by kind."""
