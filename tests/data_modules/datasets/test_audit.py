"""The data audit: several labels a response, as the files spell them."""

from pathlib import Path

import pytest

from faithkit.errors import UserError
from tests.data_modules.official import LAKE
from tests.data_modules.official.judged import AUDIT_DOHA, AUDIT_GOLD, AUDIT_GPT2
from tests.data_modules.official_rows import make, read, write


def folder(root: Path) -> Path:
    write(root / "gold" / "wow.csv", AUDIT_GOLD)
    write(root / "DoHA" / "doha_processed_wow.csv", AUDIT_DOHA)
    write(root / "GPT2" / "gpt2_processed_cmu.csv", AUDIT_GPT2)
    return root


def test_all_folders(tmp_path: Path) -> None:
    examples, counts = read(make("audit", folder(tmp_path)))
    assert {example.id: (example.label, example.tags) for example in examples} == {
        "wow:0": ("faithful", ("entailment",)),
        "wow:1": ("hallucinated", ("hallucination",)),
        "wow:2": ("hallucinated", ("partial hallucination",)),
        "wow:3": ("faithful", ("uncooperative",)),
        "doha_processed_wow:0": ("faithful", ("entailment",)),
        "doha_processed_wow:1": ("hallucinated", ("entailment", "hallucination")),
        "doha_processed_wow:2": ("faithful", ("entailment", "uncooperative")),
        "gpt2_processed_cmu:0": ("faithful", ("entailment", "uncooperative")),
    }
    dropped = {"dropped: generic": 2, "dropped: empty response": 1}
    assert counts == {**dropped, "misspelt labels, read by the table": 2, "kept": 8}
    assert len({example.group for example in examples}) == 1


def test_a_record_holds_what_the_file_says(tmp_path: Path) -> None:
    by_id = {example.id: example for example in read(make("audit", folder(tmp_path)))[0]}
    first = by_id["doha_processed_wow:0"]
    assert (first.response, first.history) == (" Deep", ())
    assert first.meta == {"model": "doha", "corpus": "wow", "vrm": ["edification", "ack."]}
    assert by_id["wow:0"].meta == {"model": "gold", "corpus": "wow", "vrm": ["disclosure", "question"]}
    assert by_id["wow:0"].history[0].speaker == "seeker"
    assert by_id["gpt2_processed_cmu:0"].meta["vrm"] == []


@pytest.mark.parametrize(("responses", "num_examples"), [("gold", 4), ("DoHA", 3), ("GPT2", 1)])
def test_one_folder_by_name_or_by_path(tmp_path: Path, responses: str, num_examples: int) -> None:
    folder(tmp_path)
    assert len(read(make("audit", tmp_path, responses=responses))[0]) == num_examples
    assert len(read(make("audit", tmp_path / responses))[0]) == num_examples
    with pytest.raises(UserError, match="none of the dataset's files"):
        read(make("audit", tmp_path, responses="CTRL"))


def test_irregular_rows_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    blank, judged = dict.fromkeys(AUDIT_GOLD[0], ""), AUDIT_GOLD[4]
    unjudged, lower = {**judged, "BEGIN": "", "VRM": " "}, {**judged, "BEGIN": "generic"}
    write(tmp_path / "gold" / "topical.csv", [AUDIT_GOLD[0], lower, *[blank] * 30, unjudged, *[blank] * 5])
    row = {"knowledge": LAKE, "history": "x", "ctrl": "deep", "begin_label": "hallucinated", "vrm_label": "ack."}
    write(tmp_path / "CTRL" / "ctrl_processed_topicalchat.csv", [{**row, "knowledge": ""}, row])
    for corpora in ("all", "topical"):
        examples, counts = read(make("audit", tmp_path, corpora=corpora))
        assert [(e.id, e.label, e.tags, e.meta["corpus"]) for e in examples] == [
            ("ctrl_processed_topicalchat:1", "hallucinated", ("hallucination",), "topical"),
            ("topical:0", "faithful", ("entailment",), "topical"),
        ]
        dropped = {"blank row": 35, "no label": 1, "no knowledge": 1, "generic": 1}
        named = {"kept": 2, "misspelt labels, read by the table": 1}
        assert counts == {f"dropped: {name}": number for name, number in dropped.items()} | named
