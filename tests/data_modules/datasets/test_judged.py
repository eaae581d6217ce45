"""Responses with a label each: BEGIN of 2022 and 2021, and FaithDial's audit with several labels a response."""

from pathlib import Path

import pytest

from faithkit.errors import UserError
from tests.data_modules.official import LAKE
from tests.data_modules.official.judged import AUDIT_DOHA, AUDIT_GOLD, AUDIT_GPT2, BEGIN, BEGIN_2021
from tests.data_modules.official_rows import labels, make, read, write


def test_the_release_of_2022(tmp_path: Path) -> None:
    examples, counts = read(make("begin", write(tmp_path / "begin_test_wow.tsv", BEGIN)))
    assert labels(examples) == {"faithful": 2, "hallucinated": 1}
    assert counts == {"layout: BEGIN 2022": 4, "dropped: generic": 1, "kept": 3}
    first, second, third = examples
    assert (first.id, first.split, first.knowledge) == ("begin_test_wow:0", "test", LAKE)
    assert [(turn.speaker, turn.text) for turn in first.history] == [("seeker", 'what is "deep"?')]
    assert first.tags == ("Fully attributable",)
    assert first.meta == {"model_name": "gpt2", "data_source": "wow"}
    assert first.group == second.group != third.group  # one source, tokenised in two ways
    assert third.history == ()
    for label in ("hallucinated", "faithful"):
        examples, counts = read(make("begin", tmp_path, generic=label))
        assert examples[3].label == label and counts[f"generic, taken as {label}"] == 1


def test_the_release_of_2021(tmp_path: Path) -> None:
    examples, counts = read(make("begin", write(tmp_path / "dev_05_24_21.tsv", BEGIN_2021)))
    assert [example.label for example in examples] == ["faithful", *["hallucinated"] * 3]
    assert [example.tags[0] for example in examples] == ["entailment", "hallucination", "off-topic", "contradiction"]
    assert examples[0].split == "validation"
    assert examples[0].meta == {"full label set": "not-generic;on-topic;cooperative;faithful"}
    assert counts == {"layout: BEGIN 2021": 5, "dropped: generic": 1, "kept": 4}


def test_files_are_found_anywhere_below_and_all_domains_make_the_split(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "wow" / "begin_test_wow.tsv", BEGIN)
    write(tmp_path / "a" / "cmu-dog" / "begin_test_cmu.tsv", BEGIN)
    write(tmp_path / "a" / "cmu-dog" / "begin_dev_cmu.tsv", BEGIN)
    write(tmp_path / "test_05_24_21.tsv", BEGIN_2021)  # the older release is not mixed in
    source = make("begin", tmp_path)
    assert {split: [file.name for file in files] for split, files in source.files().items()} == {
        "validation": ["begin_dev_cmu.tsv"],
        "test": ["begin_test_wow.tsv", "begin_test_cmu.tsv"],
    }
    examples, _ = read(source)
    assert {example.id for example in examples} >= {"begin_test_wow:0", "begin_test_cmu:0"}


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
    by_id = {example.id: example for example in examples}
    gold, doha, gpt2 = (by_id[f"{name}:0"] for name in ("wow", "doha_processed_wow", "gpt2_processed_cmu"))
    assert (doha.response, doha.history, gold.history[0].speaker) == (" Deep", (), "seeker")
    assert doha.meta == {"model": "doha", "corpus": "wow", "vrm": ["edification", "ack."]}
    assert gold.meta == {"model": "gold", "corpus": "wow", "vrm": ["disclosure", "question"]}
    assert gpt2.meta["vrm"] == []


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
