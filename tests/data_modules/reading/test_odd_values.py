"""Values of another kind than their loader expects, each found by fuzzing: a bad row with its file, line and hint."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_modules.reading.rows import ReadReport
from data_modules.weak.wow_pairs import read_generations
from faithkit.errors import UserError
from faithkit.records import Prediction
from faithkit_workflows.tables.scored_rows import write_scored
from faithkit_workflows.tables.user_table import open_user_table
from tests.data_modules.datasets import test_cmu_dog, test_topical_chat
from tests.data_modules.examples import example
from tests.data_modules.official.dialogues import FAITHDIAL, TURNS
from tests.data_modules.official.inference import DECODE
from tests.data_modules.official_rows import CASES, make, read, write

COLUMNS: dict[str, str | None] = dict.fromkeys(("knowledge", "response", "history", "id", "group"))


def check_refused(work: Callable[[], object], match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        work()
    assert len(str(caught.value).splitlines()) <= 5


# The change, and the error.
WIKI_DATA: list[tuple[dict[str, Any], str]] = [
    ({"0": {"cast": [["nested"]]}}, r"'cast\[0\]' must be text, got \['nested'\]"),
    ({"1": 5}, "'section' must be text, got 5"),
    ({"1": "\ud800"}, "'section' is not valid text: half a surrogate pair"),
    ({"wikiDocumentIdx": "7"}, "'wikiDocumentIdx' must be a number, got '7'"),
]


@pytest.mark.parametrize(("change", "match"), WIKI_DATA)
def test_bad_documents_of_cmu_dog(tmp_path: Path, change: dict[str, Any], match: str) -> None:
    source = make("cmu_dog", test_cmu_dog.corpus(tmp_path, document={**test_cmu_dog.DOCUMENT, **change}))
    check_refused(lambda: read(source), f"{match}(.|\n)*The_Lake.json, line 1(.|\n)*hint: fetch the file again")
    report = ReadReport("skip")
    assert list(source.read_split("validation", report)) == []
    # The document, and the conversation about it.
    assert [Path(reject["file"]).name for reject in report.rejects] == ["The_Lake.json", "ab12.json"]


def test_a_section_of_numbers_is_text_and_an_empty_one_is_dropped(tmp_path: Path) -> None:
    first = {**test_cmu_dog.FIRST, "year": 1999}
    document = {**test_cmu_dog.DOCUMENT, "0": first, "1": " "}
    examples, counts = read(make("cmu_dog", test_cmu_dog.corpus(tmp_path, document=document)))
    assert "year: 1999" in examples[0].knowledge and counts["dropped: the section shown is empty"] == 1


SECTION = test_topical_chat.SECTION
READING_SETS: list[tuple[Any, str]] = [
    ([], r"must be a JSON object, got \[\]"),
    ({"t_1": [5]}, r"'t_1' of the reading sets must be a JSON object, got \[5\]"),
    ({"t_1": {"agent_1": {"FS1": "x"}}}, "'FS1' of the reading set of agent_1 must be a JSON object, got 'x'"),
    ({"t_1": {"agent_1": {"FS1": {**SECTION, "fun_facts": 5}}}}, "'fun_facts' of section FS1 must be a list, got 5"),
    ({"t_1": {"agent_1": {"FS1": {"shortened_wiki_lead_section": "\ud800"}}}}, "is not valid text"),
    ({"t_1": {**test_topical_chat.BUILT["t_1"], "article": {"AS1": [5]}}}, "'article AS1' must be text"),
]


@pytest.mark.parametrize(("sets", "match"), READING_SETS)
def test_bad_reading_sets_of_topical_chat(tmp_path: Path, sets: Any, match: str) -> None:
    source = make("topical_chat", test_topical_chat.corpus(tmp_path, built=sets))
    check_refused(lambda: read(source), match)
    if sets:  # a conversation alone is bad: it is counted
        report = ReadReport("skip")
        list(source.read_split("validation", report))
        assert report.counts["rejected: bad row"] == len(report.rejects) == 1


NO_LEADS: dict[str, Any] = {"shortened_wiki_lead_section": {}, "summarized_wiki_lead_section": {}}


@pytest.mark.parametrize("wiki", [[], {}, {**NO_LEADS, "summarized_wiki_lead_section": []},
                                  {**NO_LEADS, "shortened_wiki_lead_section": {"a": []}}])  # fmt: skip
def test_bad_texts_of_wikipedia(tmp_path: Path, wiki: Any) -> None:
    folder = test_topical_chat.corpus(tmp_path, unbuilt=test_topical_chat.UNBUILT, wiki=wiki)
    check_refused(lambda: read(make("topical_chat", folder)), "must (be a JSON object|have shortened)(.|\n)*wiki.json")


@pytest.mark.parametrize("text", ["[" * 10_000, "{", "", '{"a": ' + "9" * 5_000 + "}"])
def test_reading_sets_that_are_no_json(tmp_path: Path, text: str) -> None:
    folder = test_topical_chat.corpus(tmp_path, built={})
    (folder / "reading_sets" / "post-build" / "valid_freq.json").write_text(text)
    check_refused(lambda: read(make("topical_chat", folder)), "broken JSON(.|\n)*valid_freq.json, line 1")


def turn(**change: Any) -> dict[str, Any]:
    return {**DECODE[0], "turns": [{**DECODE[0]["turns"][0], **change}, *DECODE[0]["turns"][1:]]}


ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("decode", {**DECODE[0], "aggregated_contradiction_indices": 5}, "indices' must be a list, got 5"),
    ("decode", {**DECODE[0], "aggregated_contradiction_indices": [[1]]}, r"indices' must hold whole numbers, got \[1"),
    ("decode", {**DECODE[0], "conversation_id": ["c1"]}, "'conversation_id' must be text"),
    ("decode", turn(agent_id=True), "turn 0: field 'agent_id' must be text, got True"),
    ("faithdial", {**FAITHDIAL[0], "dialog_idx": "\ud800"}, "'dialog_idx' is not valid text"),
]


@pytest.mark.parametrize(("name", "row", "match"), ROWS)
def test_values_of_another_kind(tmp_path: Path, name: str, row: dict[str, Any], match: str) -> None:
    file, rows, _ = CASES[name]
    path = write(tmp_path / file, [rows[1], row])
    check_refused(lambda: read(make(name, path)), f"{match}(.|\n)*{file}, line \\d")
    _, counts = read(make(name, path), on_bad_row="skip")
    assert counts["rejected: bad row"] == 1


def test_a_row_cannot_set_what_our_own_code_sets(tmp_path: Path) -> None:
    """A turn with a field `probability` was trained on it, or ended the training."""
    row = {**TURNS[0], "probability": "high", "whole_knowledge": 5, "nested": {"a": [1]}}
    (found,), _ = read(make("cmu_dog", write(tmp_path / "cmu_dog_test_turns.jsonl", [row])))
    assert found.meta == {"rating": 2}


@pytest.mark.parametrize("replies", [5, [], {"generation": 5}, {"generation": [{"dialogue": [[5]]}]},
                                     {"generation": [{"dialogue": [["\ud800"]]}]}])  # fmt: skip
def test_bad_generations(tmp_path: Path, replies: Any) -> None:
    (tmp_path / "generations").mkdir()
    (tmp_path / "generations" / "gpt2.json").write_text(json.dumps(replies))
    check_refused(lambda: list(read_generations(tmp_path, [example()], ReadReport())), "not a file of generations")


def own_rows(path: str, **columns: str) -> Any:
    wanted = {**COLUMNS, **columns}
    return open_user_table(path, wanted, join="\n".join)


USER_ROWS: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"knowledge": ["", ""]}, {}, "'knowledge' is empty"),
    ({"name": ["x"]}, {"id": "name"}, "'name' must hold texts or numbers"),
    ({"name": "\ud800"}, {"id": "name"}, "'name' is not valid text"),
    ({"asked": "\ud800"}, {"history": "asked"}, "'asked' is not valid text"),
    ({"other": float("nan")}, {}, "cannot be written as JSON"),
]


@pytest.mark.parametrize(("change", "columns", "match"), USER_ROWS)
def test_bad_rows_of_ones_own(tmp_path: Path, change: dict[str, Any], columns: dict[str, str], match: str) -> None:
    file = write(tmp_path / "rows.jsonl", [{"knowledge": "k", "response": "r", **change}])
    check_refused(lambda: own_rows(str(file), **columns), f"{match}(.|\n)*rows.jsonl, line 1")


def test_half_a_surrogate_pair_is_written_back_as_its_escape(tmp_path: Path) -> None:
    rows = own_rows(str(write(tmp_path / "rows.jsonl", [{"knowledge": "k", "response": "r", "x": "\ud800"}])))
    predictions = [Prediction(id=each.id, label="faithful", score=0.5) for each in rows.examples]
    write_scored(tmp_path / "out.csv", rows, predictions)
    assert "\\ud800" in (tmp_path / "out.csv").read_text()
