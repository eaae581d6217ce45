"""Measures how far annotators agree: on labels, on ratings and on spans; and whether human scores differ."""
