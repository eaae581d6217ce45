"""Sources of RAGTruth's tasks: what models read of them, and what responses say of fields that are null."""

import json
from pathlib import Path

import pytest

from construction.chain.steps import KEY
from faithkit.errors import UserError
from faithkit_workflows.pipelines.rag import DATA, SUMMARY, RagSources, prompt_values

BUSINESS = {
    "name": "Oak",
    "attributes": {"WiFi": None, "OutdoorSeating": None, "Music": "live"},
    "hours": [None, "9-5"],
}
ROW = {KEY: "1", "task": DATA, "corpus": "Yelp", "source_info": BUSINESS}


def test_fields_that_are_null_are_named_shown_or_left_out() -> None:
    assert json.loads(prompt_values(ROW, "keep")["data"]) == BUSINESS
    shown = json.loads(prompt_values(ROW, "drop")["data"])
    assert shown == {"name": "Oak", "attributes": {"Music": "live"}, "hours": ["9-5"]}


@pytest.mark.parametrize(("words", "most"), [(2, "1"), (400, "100"), (4000, "200")])
def test_a_summary_has_a_quarter_of_the_words_and_200_at_most(words: int, most: str) -> None:
    row = {**ROW, "task": SUMMARY, "source_info": "word " * words}
    assert prompt_values(row, "keep")["max_words"] == most


def test_a_bad_source_stops_the_run_or_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "source_info.jsonl"
    bad = [{"source_id": "2", "task_type": "QA", "source_info": {"question": "?"}}]
    good = [{"source_id": str(i), "task_type": "Summary", "source_info": "A text."} for i in (1, 3, 4)]
    file.write_text("\n".join(json.dumps(row) for row in (good[0], *bad, *good[1:])))
    with pytest.raises(UserError, match="passages"):
        list(RagSources(str(tmp_path)).rows())
    assert [row[KEY] for row in RagSources(str(file), limit=2, on_bad_row="skip").rows()] == ["1", "3"]
    with pytest.raises(UserError, match="no file of sources"):
        RagSources(str(tmp_path / "none"))
