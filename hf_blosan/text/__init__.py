"""Text: tokenizers built from texts, pretrained ones, and word vectors."""
