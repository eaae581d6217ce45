"""MNLI, SNLI, ConjNLI, Dialogue NLI and DECODE."""

from pathlib import Path

import pytest

from faithkit.errors import UserError
from tests.data_modules.official import LAKE
from tests.data_modules.official.inference import CONJNLI, DECODE, DNLI, MNLI, SNLI
from tests.data_modules.official_rows import labels, make, read, write


def test_mnli(tmp_path: Path) -> None:
    examples, counts = read(make("mnli", write(tmp_path / "multinli_1.0_dev_matched.jsonl", MNLI)))
    assert [(example.id, example.label, example.tags) for example in examples] == [
        ("10e", "faithful", ("entailment",)),
        ("10n", "hallucinated", ("neutral",)),
        ("10c", "hallucinated", ("contradiction",)),
    ]
    assert (examples[0].split, examples[0].group, examples[0].knowledge) == ("validation", "10", LAKE)
    assert (examples[0].response, examples[0].meta) == ("hypothesis 10e", {"genre": "travel"})
    assert counts == {"dropped: no gold label": 1, "kept": 3}


FILES = {
    "mnli": ("multinli_1.0_dev_matched.jsonl", MNLI, "10e"),
    "snli": ("snli_1.0_dev.jsonl", SNLI, "10e"),
    "conjnli": ("conj_dev.tsv", CONJNLI, ""),
    "dnli": ("dialogue_nli_dev.jsonl", DNLI, "dialogue_nli_test_0"),
}


@pytest.mark.parametrize("name", FILES)
def test_neutral_pairs_can_be_dropped_and_repeated_ids_are_made_unique(tmp_path: Path, name: str) -> None:
    file, rows, first = FILES[name]
    path = write(tmp_path / file, rows)
    assert labels(read(make(name, path))[0]) == {"faithful": 1, "hallucinated": 2}
    examples, counts = read(make(name, path, neutral="drop"))
    assert labels(examples) == {"faithful": 1, "hallucinated": 1} and counts["dropped: neutral"] == 1
    if first:
        examples, counts = read(make(name, write(path, [rows[0], rows[1], rows[0]])))
        assert [example.id for example in examples][::2] == [first, f"{first}@{path.stem}:2"]
        assert counts["repeated id, made unique by its row"] == 1


def test_mnli_in_glues_layout(tmp_path: Path) -> None:
    keep = ("promptID", "pairID", "genre", "sentence1", "sentence2", "gold_label")
    rows = [{"index": str(n)} | {name: row[name] for name in keep} for n, row in enumerate(MNLI)]
    rows[0]["sentence1"] = '"Orvel is deep'  # a quote is a character here
    for name in ("dev_matched.tsv", "dev_mismatched.tsv"):
        write(tmp_path / "MNLI" / name, rows)
    source = make("mnli", tmp_path)
    assert list(source.files()) == ["validation", "validation_mismatched"]
    examples, _ = read(source)
    assert (examples[0].id, examples[0].knowledge) == ("10e", '"Orvel is deep')
    write(tmp_path / "MNLI" / "multinli_1.0_train.jsonl", MNLI)  # the corpus's files come first
    assert list(source.files()) == ["train"]


def test_conjnli_with_its_byte_order_mark_and_a_test_file_without_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "conj_dev.tsv", CONJNLI)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    examples, _ = read(make("conjnli", path))
    assert [example.id for example in examples] == ["conj_dev:0", "conj_dev:1", "conj_dev:2"]
    assert [example.label for example in examples] == ["faithful", "hallucinated", "hallucinated"]
    assert examples[2].knowledge == 'Orvel is "deep" and cold.'
    assert examples[0].group == examples[1].group != examples[2].group
    rows = [{name: row[name] for name in ("Premise", "Hypothesis")} for row in CONJNLI]
    write(tmp_path / "conj_test.tsv", rows)
    source = make("conjnli", tmp_path)
    examples, counts = read(source, "test")
    assert labels(examples) == {None: 3} and counts["unlabelled"] == 3
    assert read(source)[0][0].split == "validation", "what has no labels is not tested on by default"


def test_dialogue_nli_is_a_list_under_the_name_of_lines(tmp_path: Path) -> None:
    write(tmp_path / "dnli" / "dialogue_nli" / "dialogue_nli_test.jsonl", DNLI, as_list=True)
    write(tmp_path / "dnli" / "dialogue_nli" / "dialogue_nli_verified_test.jsonl", DNLI, as_list=True)
    source = make("dnli", tmp_path)
    assert list(source.files()) == ["test", "test_verified"]
    examples, _ = read(source)
    assert [(example.id, example.label, example.tags) for example in examples] == [
        ("dialogue_nli_test_0", "faithful", ("positive",)),
        ("dialogue_nli_test_1", "hallucinated", ("negative",)),
        ("dialogue_nli_test_2", "hallucinated", ("neutral",)),
    ]
    assert (examples[0].knowledge, examples[0].response) == ("i fish at lake orvel .", "i like lakes 0 .")
    assert examples[0].meta == {"dtype": "matchingtriple_up"}


def test_decode_sets_the_last_utterance_against_its_speakers_earlier_ones(tmp_path: Path) -> None:
    examples, counts = read(make("decode", write(tmp_path / "dev.jsonl", DECODE)))
    first, second = examples
    assert (first.id, first.split, first.label, first.tags) == ("r1", "validation", "hallucinated", ("contradiction",))
    assert (first.knowledge, first.response) == ("i live by lake orvel", "i never saw a lake")
    assert [turn.speaker for turn in first.history] == ["seeker", "wizard", "seeker"]
    assert first.meta == {"contradicted": [1]}
    assert (second.label, second.tags, second.meta) == ("faithful", ("non-contradiction",), {"contradicted": []})
    assert first.group == second.group == "c1" and counts == {"kept": 2}
    short = {**DECODE[0], "record_id": "r3", "turns": DECODE[0]["turns"][:2]}
    file = write(tmp_path / "human-bot.jsonl", [short, *DECODE])
    examples, counts = read(make("decode", file))
    assert len(examples) == 2 and examples[0].split == "human_bot"
    assert counts["dropped: no earlier utterance to contradict"] == 1
    whole = read(make("decode", file, knowledge="dialogue"))[0][1]
    assert whole.knowledge == "i live by the sea i live by lake orvel nice"


def test_decode_pairs_as_faithdials_release_makes_them(tmp_path: Path) -> None:
    turns = [{"turn_id": n, "agent_id": n % 2, "text": f"text {n}"} for n in range(6)]
    several = {**DECODE[0], "record_id": "r3", "turns": turns, "aggregated_contradiction_indices": [1, 3, 5]}
    none = {**DECODE[0], "record_id": "r4", "aggregated_contradiction_indices": [3]}
    short = {**DECODE[1], "record_id": "r5", "turns": DECODE[1]["turns"][:3]}
    rows = [*DECODE, several, none, short]
    examples, counts = read(make("decode", write(tmp_path / "dev.jsonl", rows), official=True))
    assert [(example.id, example.knowledge, example.response, example.label) for example in examples] == [
        ("r1-1", "i live by lake orvel", "i never saw a lake", "hallucinated"),
        ("r2", "i live by lake orvel", "it is deep", "faithful"),
        ("r3-1", "text 1", "text 5", "hallucinated"),
        ("r3-2", "text 3", "text 5", "hallucinated"),
        ("r5", "i live by lake orvel", "nice", "faithful"),  # the other speaker's
    ]
    assert counts["dropped: no earlier utterance to contradict"] == 1
    outside = {**several, "aggregated_contradiction_indices": [9, 5]}
    with pytest.raises(UserError, match="names turn 9, and there are 6"):
        read(make("decode", write(tmp_path / "test.jsonl", [outside]), official=True))
