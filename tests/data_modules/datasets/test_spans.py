"""RAGTruth and XSum's token labels: spans that are what they say, and switches that each do something."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.datasets.ragtruth import LABELS, render
from data_modules.reading.fields import align_tokens
from data_modules.reading.rows import BadRow
from faithkit.errors import UserError
from faithkit.records import Example
from tests.data_modules.official import Rows
from tests.data_modules.official.spans import PASSAGES, RAGTRUTH, RAGTRUTH_SOURCES, XSUM_TOKENS, marked, response
from tests.data_modules.official_rows import labels, make, read, write


def corpus(folder: Path, responses: Rows = RAGTRUTH, sources: Rows = RAGTRUTH_SOURCES) -> Path:
    write(folder / "source_info.jsonl", sources)
    write(folder / "response.jsonl", responses)
    return folder


def texts(example: Example) -> list[tuple[str, str]]:
    return [(example.response[span.start : span.end], span.label) for span in example.spans or ()]


def test_answers_with_what_they_were_to_hold_to(tmp_path: Path) -> None:
    examples, counts = read(make("ragtruth", corpus(tmp_path)))
    assert counts == {"kept": 4} and labels(examples) == {"faithful": 2, "hallucinated": 2}
    right, wrong, summary, data = examples
    assert (right.id, right.group, right.split, right.spans, right.knowledge) == ("0", "70", "test", (), PASSAGES)
    assert [(turn.speaker, turn.text) for turn in right.history] == [("seeker", "how deep is lake orvel")]
    assert texts(wrong) == [("shallowest", "evident_conflict"), ("people swim in it", "subtle_baseless")]
    assert wrong.tags == ("Evident Conflict", "Subtle Baseless Info")
    meta = {"task": "QA", "model": "model-1", "quality": "good", "corpus": "MARCO"}
    assert wrong.meta == meta | {"temperature": 0.7, "implicit_true": [1]}
    assert (summary.meta["task"], summary.history, summary.group) == ("Summary", (), "71")
    assert [label for _, label in texts(data)] == ["evident_baseless", "evident_baseless", "subtle_conflict"]
    assert data.meta["due_to_null"] == [0, 1]


def test_data_are_shown_as_lines_in_which_null_and_false_stay_apart(tmp_path: Path) -> None:
    data = read(make("ragtruth", corpus(tmp_path)))[0][3]
    lines = ["name: Orvel Inn", "attributes.WiFi: free", "attributes.Parking.garage: false"]
    lines += ["attributes.Parking.lot: null", "hours: null", "business_stars: 4.5"]
    lines += ["review_info.1.review_text: Nice", "view.", "review_info.2.review_text: Cold."]
    assert data.knowledge.split("\n") == lines
    assert render({"a": {}, "b": [], "c": [1, [True]]}) == "a: {}\nb: []\nc.1: 1\nc.2.1: true"


@pytest.mark.parametrize(
    ("options", "spans", "counted"),
    [
        ({}, [0, 2, 0, 3], {}),
        ({"implicit_true": "drop"}, [0, 1, 0, 3], {"span, implicit_true": 1}),
        ({"due_to_null": "drop"}, [0, 2, 0, 1], {"span, due_to_null": 2}),
        ({"severity": "evident"}, [0, 1, 0, 2], {"span, subtle": 2}),
        ({"severity": "subtle"}, [0, 1, 0, 1], {"span, evident": 3}),
        ({"severity": "subtle", "implicit_true": "drop"}, [0, 0, 0, 1], {"span, implicit_true": 1, "span, evident": 3}),
        ({"tasks": "Summary"}, [0], {"task QA": 2, "task Data2txt": 1}),
        ({"tasks": ["qa", "DATA2TXT"]}, [0, 2, 3], {"task Summary": 1}),
        ({"models": "Model-1"}, [2, 3], {"model model-0": 2}),
        ({"models": ["model-0", "model-1"]}, [0, 2, 0, 3], {}),
    ],
)
def test_each_switch_tells_how_often(tmp_path: Path, options: Any, spans: list[int], counted: dict[str, int]) -> None:
    examples, counts = read(make("ragtruth", corpus(tmp_path), **options))
    assert [len(example.spans or ()) for example in examples] == spans
    assert [example.label for example in examples] == ["hallucinated" if num else "faithful" for num in spans]
    emptied = {"faithful, since none of its spans counts": 1} if spans == [0, 0, 0, 1] else {}
    dropped = {f"dropped: {name}": count for name, count in counted.items()}
    assert counts == dropped | emptied | {"kept": len(spans)}


def test_refusals_and_cut_answers_are_left_out_unless_all_are_wanted(tmp_path: Path) -> None:
    path = corpus(tmp_path, [*RAGTRUTH, response(9, 70, "Unable to answer.", quality="incorrect_refusal")])
    examples, counts = read(make("ragtruth", path))
    assert len(examples) == 4 and counts["dropped: quality incorrect_refusal"] == 1
    assert len(read(make("ragtruth", path, quality="all"))[0]) == 5


def test_the_split_stands_in_each_response(tmp_path: Path) -> None:
    rows = [{**row, "split": split} for row, split in zip(RAGTRUTH, ["train", "test"] * 2, strict=True)]
    source = make("ragtruth", corpus(tmp_path, rows))
    assert list(source.files()) == ["train", "test"]
    assert [[e.id for e in read(source, split)[0]] for split in ("train", "test")] == [["0", "2"], ["1", "3"]]
    assert [file.name for file in source.files()["test"]] == ["response.jsonl", "source_info.jsonl"]  # the cache's key
    bare = corpus(tmp_path / "bare", [{name: v for name, v in row.items() if name != "split"} for row in RAGTRUTH])
    with pytest.raises(UserError, match="field 'split' is None; known: 'train'"):
        read(make("ragtruth", bare))
    (corpus(tmp_path / "alone") / "source_info.jsonl").unlink()
    with pytest.raises(UserError, match=r"no source_info\.jsonl next to the responses"):
        read(make("ragtruth", tmp_path / "alone"))
    for path in (tmp_path, bare):  # the switch is the way out
        whole = read(make("ragtruth", path, official_split=False))[0]
        assert {example.split for example in whole} == {"all"} and len(whole) == 4


WORD = "Lake Orvel is deep."


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("span", {"end": 400}, r"labels\[0\]: field 'end' is 400, but the answer has 19 characters"),
        ("span", {"start": 15, "end": 14}, r"labels\[0\]: field 'start' is 15, behind its 'end' 14"),
        ("span", {"end": 14}, "'start' and 'end' are both 14: the span holds nothing"),
        ("span", {"text": "dee"}, "field 'text' is 'dee', but the answer has 'deep' at 14 to 18"),
        ("span", {"start": "14"}, "field 'start' must be a whole number from 0, got '14'"),
        ("span", {"label_type": "Some Conflict"}, "field 'label_type' is 'Some Conflict'; known: 'evident conflict'"),
        ("span", {"implicit_true": "no"}, "field 'implicit_true' must be true or false, got 'no'"),
        ("response", {"response": ""}, "field 'response' is empty"),
        ("response", {"labels": ["deep"]}, r"labels\[0\]: must be a JSON object"),
        ("response", {"id": "0"}, "field 'id' is '0', which was already given by line 1"),
        ("response", {"source_id": "99"}, "'source_id' is '99': source_info.jsonl has no such source"),
        ("response", {"split": "dev"}, "field 'split' is 'dev'; known: 'train', 'validation', 'test'"),
        ("source", {"task_type": "Chat"}, "field 'task_type' is 'Chat'; known: 'qa', 'summary', 'data2txt'"),
        ("source", {"source_id": "70"}, "field 'source_id' is '70', which was already given by line 1"),
        ("source", {"source_info": " "}, "field 'source_info' is empty"),
        ("source", {"task_type": "QA"}, "must be a JSON object"),
        ("source", {"task_type": "Data2txt", "source_info": {"name": "\udc00"}}, "half a surrogate pair"),
    ],
)
def test_a_row_that_cannot_be_right(tmp_path: Path, file: str, change: dict[str, Any], message: str) -> None:
    span = {**marked(WORD, "deep"), **(change if file == "span" else {})}
    bad = {**response(8, 71, WORD, span), **(change if file == "response" else {})}
    source = {**RAGTRUTH_SOURCES[1], **(change if file == "source" else {})}
    path = corpus(tmp_path, [RAGTRUTH[0], bad], [RAGTRUTH_SOURCES[0], source])
    with pytest.raises(UserError, match=message) as caught:
        read(make("ragtruth", path))
    place = "source_info.jsonl" if file == "source" else "response.jsonl"
    assert f"{place}, line 2" in str(caught.value) and "hint: " in str(caught.value)
    examples, counts = read(make("ragtruth", path), on_bad_row="skip")
    assert len(examples) == 1
    assert counts["rejected: bad row"] == (2 if file == "source" else 1)  # the source, and the answer to it


@given(st.data())
def test_any_text_and_its_spans_come_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    answer = data.draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip))
    wanted = []
    for _ in range(data.draw(st.integers(0, 4))):
        start = data.draw(st.integers(0, len(answer) - 1))
        end = data.draw(st.integers(start + 1, len(answer)))
        wanted.append((start, end, data.draw(st.sampled_from(sorted(LABELS)))))
    spans = [{"start": a, "end": b, "text": answer[a:b], "label_type": label.title()} for a, b, label in wanted]
    path = corpus(tmp_path_factory.mktemp("any"), [response(1, 70, answer, *spans)])
    found = read(make("ragtruth", path))[0][0]
    assert found.response == answer
    places = [(span.start, span.end, span.label) for span in found.spans or ()]
    assert [place[:2] for place in places] == sorted((a, b) for a, b, _ in wanted)
    assert sorted(places) == sorted((a, b, LABELS[label]) for a, b, label in wanted)


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
    places = align_tokens(summary, tokens)
    plain = [summary[start:end].replace("\\", "") for start, end in places]
    assert plain == ["orvel's", '"deep"', "lake"]


@pytest.mark.parametrize(
    ("summary", "tokens", "message"),
    [
        ("a deep lake", ["a", "lake"], r"'tokens\[1\]' is 'lake', but the text goes on with 'deep lake'"),
        ("a deep lake", ["a", "deep", "lake", "is"], r"'tokens\[3\]' is 'is', but the text goes on with ''"),
        ("a deep lake", ["a", "deep"], "ends before the text does: 'lake' is left"),
        ("a deep lake", ["a", "", "deep", "lake"], r"'tokens\[1\]' is ''"),
        ("a \\deep lake", ["a", "deep", "lake"], r"'tokens\[1\]'"),  # only quotes are escaped
    ],
)
def test_tokens_that_are_not_the_summarys(summary: str, tokens: list[str], message: str) -> None:
    with pytest.raises(BadRow, match=message):
        align_tokens(summary, tokens)
