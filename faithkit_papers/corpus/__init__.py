"""Describes a corpus: numbers, tables, plots, page and datasheet. Examples are read once, and no text is kept."""
