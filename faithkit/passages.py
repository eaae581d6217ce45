"""Makes one text of a list of passages, as taggers were trained to read them."""

from collections.abc import Sequence


def number_passages(passages: Sequence[str]) -> str:
    """Passages as RAGTruth, the taggers' corpus, writes those of its questions: each with its number."""
    if len(passages) == 1:
        return passages[0]
    return "".join(f"passage {number}:{text}\n\n" for number, text in enumerate(passages, start=1))
