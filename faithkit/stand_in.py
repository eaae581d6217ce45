"""Names the embedded corpus, which stands in for a dataset that is not at hand, so that no reader takes it for that."""

EMBEDDED = "embedded"  # a dataset of its own, and the `path` of any other that it stands in for


def told_name(dataset: str, path: object) -> str:
    """Names a dataset as a reader should see it.

    >>> told_name("ragtruth", "embedded"), told_name("ragtruth", "my/folder"), told_name("embedded", "embedded")
    ('embedded-ragtruth', 'ragtruth', 'embedded')
    """
    return f"{EMBEDDED}-{dataset}" if path == EMBEDDED != dataset else dataset
