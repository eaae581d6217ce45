"""BEGIN in the releases of 2022 and 2021."""

from pathlib import Path

import pytest

from tests.data_modules.official import LAKE
from tests.data_modules.official.judged import BEGIN, BEGIN_2021
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


def test_the_release_of_2021(tmp_path: Path) -> None:
    examples, counts = read(make("begin", write(tmp_path / "dev_05_24_21.tsv", BEGIN_2021)))
    assert [(example.label, example.tags[0]) for example in examples] == [
        ("faithful", "entailment"),
        ("hallucinated", "hallucination"),
        ("hallucinated", "off-topic"),
        ("hallucinated", "contradiction"),
    ]
    assert examples[0].split == "validation"
    assert examples[0].meta == {"full label set": "not-generic;on-topic;cooperative;faithful"}
    assert counts == {"layout: BEGIN 2021": 5, "dropped: generic": 1, "kept": 4}


@pytest.mark.parametrize("generic", ["hallucinated", "faithful"])
def test_generic_responses_can_be_kept(tmp_path: Path, generic: str) -> None:
    examples, counts = read(make("begin", write(tmp_path / "begin_dev_cmu.tsv", BEGIN), generic=generic))
    assert examples[3].label == generic
    assert counts[f"generic, taken as {generic}"] == 1


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
