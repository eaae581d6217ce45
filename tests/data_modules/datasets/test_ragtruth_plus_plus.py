"""RAGTruth++: prompts and answers in one table, their spans in another."""

from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from tests.data_modules.official import Rows
from tests.data_modules.official.benchmark_sets import INN, MESSAGES, PLUS_PLUS_SPANS, message, span
from tests.data_modules.official_rows import make, read, write


def corpus(folder: Path, messages: Rows = MESSAGES, spans: Rows = PLUS_PLUS_SPANS) -> Path:
    write(folder / "hallucination_spans.csv", spans)
    write(folder / "messages.csv", messages)
    return folder


def test_an_answer_has_the_prompt_of_its_thread_and_its_spans(tmp_path: Path) -> None:
    examples, counts = read(make("ragtruth_plus_plus", corpus(tmp_path)))
    assert counts == {"kept": 2} and [one.label for one in examples] == ["hallucinated", "faithful"]
    first = examples[0]
    assert (first.id, first.split) == ("a1", "test") and first.knowledge.endswith(INN)
    found = [(first.response[one.start : one.end], one.label) for one in first.spans or ()]
    assert found == [("ten rooms", "evident_conflict"), ("a pool", "hallucination")]
    assert first.tags == ("Invented", "Evident Conflict") and examples[1].spans == ()
    assert first.meta == {"model": "small", "original_id": "17"}


def test_a_span_whose_offsets_miss_its_text_is_moved_there_and_counted(tmp_path: Path) -> None:
    examples, counts = read(make("ragtruth_plus_plus", corpus(tmp_path, spans=[span("a1", 8, 17, "ten rooms")])))
    assert counts["span moved to its text, which its offsets miss"] == 1
    assert [(one.start, one.end) for one in examples[0].spans or ()] == [(7, 16)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"end_pos": "99"}, "a span from 22 to 99 is none of the answer's 29 characters"),
        ({"start_pos": "-1"}, "'start_pos' must be a whole number from 0, got '-1'"),
        ({"span_text": "a sauna"}, "the text of a span is 'a sauna', but the answer has 'a pool'"),
        ({"message_stable_id": "a9"}, "'message_stable_id' is 'a9': messages.csv has no such message"),
    ],
)
def test_a_bad_span_is_told_with_its_line_and_never_makes_its_answer_faithful(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    folder = corpus(tmp_path, spans=[{**PLUS_PLUS_SPANS[0], **change}])
    with pytest.raises(UserError, match=message) as caught:
        read(make("ragtruth_plus_plus", folder))
    assert "hallucination_spans.csv, line 2" in str(caught.value)
    examples, counts = read(make("ragtruth_plus_plus", folder), on_bad_row="skip")
    assert counts["rejected: bad row"] == 1
    assert {one.id for one in examples} == ({"a1", "a2"} if "message_stable_id" in change else {"a2"})


def test_messages_that_make_no_pair(tmp_path: Path) -> None:
    alone = message("a3", "assistant", 0, "Yes.", "t3")
    with pytest.raises(UserError, match="an answer without a prompt"):
        read(make("ragtruth_plus_plus", corpus(tmp_path, [*MESSAGES, alone])))
    with pytest.raises(UserError, match="field 'role' is 'tool'; known: 'user', 'assistant'"):
        read(make("ragtruth_plus_plus", corpus(tmp_path, [{**alone, "role": "tool"}])))
    (corpus(tmp_path) / "hallucination_spans.csv").unlink()
    with pytest.raises(UserError, match=r"no hallucination_spans.csv next to the messages"):
        read(make("ragtruth_plus_plus", tmp_path))
