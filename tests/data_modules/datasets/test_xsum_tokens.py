"""Token labels as spans of characters."""

from pathlib import Path

import pytest

from data_modules.datasets.xsum_tokens import align
from data_modules.reading.rows import BadRow
from tests.data_modules.official.spans import XSUM_TOKENS
from tests.data_modules.official_rows import labels, make, read, write


def test_runs_of_marked_tokens_are_spans(tmp_path: Path) -> None:
    examples, counts = read(make("xsum_tokens", write(tmp_path / "xsum_token_labels.jsonl", XSUM_TOKENS)))
    assert counts == {"kept": 3} and labels(examples) == {"faithful": 1, "hallucinated": 2}
    second = examples[1]
    assert (second.id, second.group, second.split, second.reference) == ("7:PtGen", "7", "all", "A lake.")
    assert second.meta == {"task": "Summary", "model": "PtGen"}
    found = [(second.response[span.start : span.end], span.label) for span in second.spans or ()]
    assert found == [("orvel\\'s", "hallucination"), ("not deep.", "hallucination")]


@pytest.mark.parametrize("summary", ['orvel\'s "deep"  lake', 'orvel\\\'s \\"deep\\" lake', ' orvel\\\'s "deep"lake\n'])
@pytest.mark.parametrize("tokens", [["orvel's", '"deep"', "lake"], ["orvel\\'s", '\\"deep\\"', "lake"]])
def test_quotes_may_be_escaped_on_either_side(summary: str, tokens: list[str]) -> None:
    places = align(summary, tokens)
    plain = [summary[start:end].replace("\\", "") for start, end in places]
    assert plain == ["orvel's", '"deep"', "lake"]


@pytest.mark.parametrize(
    ("summary", "tokens", "message"),
    [
        ("a deep lake", ["a", "lake"], r"'tokens\[1\]' is 'lake', but the summary goes on with 'deep lake'"),
        ("a deep lake", ["a", "deep", "lake", "is"], r"'tokens\[3\]' is 'is', but the summary goes on with ''"),
        ("a deep lake", ["a", "deep"], "ends before the summary does: 'lake' is left"),
        ("a deep lake", ["a", "", "deep", "lake"], r"'tokens\[1\]' is ''"),
        ("a \\deep lake", ["a", "deep", "lake"], r"'tokens\[1\]'"),  # only quotes are escaped
    ],
)
def test_tokens_that_are_not_the_summarys(summary: str, tokens: list[str], message: str) -> None:
    with pytest.raises(BadRow, match=message):
        align(summary, tokens)
