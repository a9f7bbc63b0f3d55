"""A saved model as a web service: the JSON of the Hub's inference API, with requests computed in common batches."""
