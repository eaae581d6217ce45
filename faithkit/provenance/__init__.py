"""Records where predictions come from and which rows a model has already seen."""
