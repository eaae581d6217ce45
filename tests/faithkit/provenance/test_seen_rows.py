"""Keys of rows, the same for a row that was only formatted in another way; rows that a model has seen, and leaks."""

import unicodedata
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.provenance.row_keys import NO_KEY, RowKeys, row_keys, text_key
from faithkit.provenance.used_model import (
    BITS,
    CALIBRATED,
    CHOSEN,
    KEY_NAMES,
    SEEN_ROWS_FILE,
    TRAINED,
    SeenRows,
    UsedModel,
    find_leaks,
    read_seen,
)
from faithkit.records import Example, Prediction
from faithkit.reports.part_reports import report_suppression
from faithkit.reports.perplexity_report import perplexity_report
from faithkit.reports.report import Provenance

TEXTS = {"knowledge": "The Café's 2nd floor, opened in 1990.", "response": "It has a second floor!"}
ROW = Example(id="1", source="faithdial", split="train", group="7", **TEXTS)


def changed_keys(**changes: object) -> tuple[int, int, int]:
    keys = row_keys([replace(ROW, **changes)])  # type: ignore[arg-type]
    return keys.row[0], keys.knowledge[0], keys.group[0]


ACCENTS = st.characters(min_codepoint=0x300, max_codepoint=0x36F)
EUROPEAN = st.characters(max_codepoint=0x58F, exclude_characters="\u0483\u0484\u0485\u0486\u0487")  # to Armenian


def letters_and_digits(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text).lower()
    return "".join(character for character in decomposed if character.isalnum())


@given(
    text=st.text(EUROPEAN | ACCENTS | st.sampled_from("ﬁẞựⅫ①👍\ufe0f_ー北京"))
    | st.text(st.characters(max_codepoint=127))
)
def test_letters_and_digits_make_the_key_of_a_text_whose_marks_are_accents(text: str) -> None:
    assert text_key(text) == letters_and_digits(text)


@given(text=st.text())
def test_a_key_has_the_letters_and_digits_of_any_text_and_else_marks_alone(text: str) -> None:
    key = text_key(text)
    assert letters_and_digits(key) == letters_and_digits(text)
    assert all(c.isalnum() or unicodedata.category(c) in ("Mn", "Mc") for c in key)
    assert {text_key(unicodedata.normalize(form, text)) for form in ("NFC", "NFD", "NFKC", "NFKD")} == {key}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *[("कीमत दो सौ", "कामत दा सा"), ("राम की बेटी है", "राम का बेटा है"), ("かぎ", "かき"), ("バス", "パス")],
        *[("ก็", "กี่"), ("كِتَاب", "كُتَّاب"), ("ﾊﾞｽ", "ﾊﾟｽ")],
    ],
)
def test_marks_that_are_no_accents_tell_words_apart(one: str, other: str) -> None:
    assert text_key(one) != text_key(other)
    for text in (one, other):
        assert text_key(unicodedata.normalize("NFD", text)) == text_key(f" {text}!") == text_key(text)


@pytest.mark.parametrize(
    "knowledge",
    [
        "the cafe 's 2nd floor , opened in 1990 .",
        "THE CAFÉ’S 2ND FLOOR,\n\topened in 1990",
        unicodedata.normalize("NFD", ROW.knowledge),
    ],
)
def test_a_reformatted_row_has_the_same_keys(knowledge: str) -> None:
    assert changed_keys(knowledge=knowledge, response="it has a second floor .", id="other") == changed_keys()


def test_what_differs_has_other_keys() -> None:
    row, knowledge, group = changed_keys()
    third = changed_keys(response="It has a third floor!")
    assert third == (changed_keys(response="it has a third floor")[0], knowledge, group) and third[0] != row
    other = changed_keys(knowledge="The Café's 2nd floor, opened in 1991.")
    assert other[0] != row and other[1] != knowledge and other[2] == group
    for changes in ({"group": "8"}, {"split": "test"}, {"source": "wow"}):
        assert changed_keys(**changes)[:2] == (row, knowledge) and changed_keys(**changes)[2] != group
    assert changed_keys(knowledge="ab", response="c")[0] != changed_keys(knowledge="a", response="bc")[0]
    assert changed_keys(response="👍")[0] != changed_keys(response="👎")[0]


def test_knowledge_counts_before_any_cut_and_an_empty_one_not_at_all() -> None:
    assert changed_keys(knowledge="floor", meta={"whole_knowledge": ROW.knowledge}) == changed_keys()
    assert changed_keys(knowledge=" ")[1] == NO_KEY and changed_keys(knowledge="")[0] != NO_KEY
    assert changed_keys(knowledge="", response=" ")[0] == NO_KEY
    assert all(len(keys) == 0 for keys in row_keys([])) and len(RowKeys._fields) == 3


KEYS = st.lists(st.integers(1, 2**64 - 1), max_size=30)


def keys_of(numbers: list[int]) -> RowKeys:
    return RowKeys(*(np.array(numbers, np.uint64) for _ in KEY_NAMES))


def random_keys(count: int, seed: int = 0) -> RowKeys:
    return RowKeys(*np.random.default_rng(seed).integers(1, 2**64 - 1, (3, count), dtype=np.uint64))


@given(first=st.lists(KEYS, max_size=3), second=KEYS)
def test_whatever_was_seen_is_found(first: list[list[int]], second: list[int], tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("seen")
    whole = SeenRows.of({TRAINED: map(keys_of, first)}) | SeenRows.of({CHOSEN: [keys_of(second)]}, ["an old run"])
    whole.write(folder)
    found = read_seen(folder)
    assert found is not None and found.unknown_bases == ("an old run",)
    for use, numbers in ((TRAINED, list(chain(*first))), (CHOSEN, second)):
        shortened = {number >> (64 - BITS) for number in numbers}
        for kind in KEY_NAMES:
            assert found.contains(use, kind, np.array(numbers, np.uint64)).all()
            others = np.array([n for n in range(1 << 20, 1 << 64, 1 << 60) if n >> (64 - BITS) not in shortened])
            assert not found.contains(use, kind, others.astype(np.uint64)).any()


def test_an_empty_text_is_never_seen() -> None:
    seen = SeenRows.of({TRAINED: [keys_of([0, 5 << 40])]})
    assert seen.contains(TRAINED, "knowledge", np.array([0, 5 << 40], np.uint64)).tolist() == [False, True]


def test_a_file_takes_few_bytes_a_row_and_finds_hardly_another(tmp_path: Path) -> None:
    parts = (random_keys(50_000, seed) for seed in range(4))
    SeenRows.of({TRAINED: parts}).write(tmp_path)
    size = (tmp_path / SEEN_ROWS_FILE).stat().st_size
    assert size < 13 * 200_000  # three keys of 46 bits, of which 17.6 are not written
    seen = read_seen(tmp_path)
    assert seen is not None and seen.contains(TRAINED, "row", random_keys(50_000, 3).row).all()
    assert not seen.contains(TRAINED, "row", random_keys(50_000, 99).row).any()


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-30], lambda b: b"{}", lambda b: bytes(len(b))])
def test_a_damaged_file_is_refused(tmp_path: Path, damage) -> None:
    assert read_seen(tmp_path) is None, "a folder without the file"
    SeenRows.of({TRAINED: [random_keys(100)]}).write(tmp_path)
    (tmp_path / SEEN_ROWS_FILE).write_bytes(damage((tmp_path / SEEN_ROWS_FILE).read_bytes()))
    with pytest.raises(UserError, match="damaged"):
        read_seen(tmp_path)


def row(number: int, group: str, knowledge: str, split: str = "test") -> Example:
    texts = {"knowledge": knowledge, "response": f"Response {number}."}
    return Example(id=f"{group}:{number}", source="wow", split=split, group=group, **texts)


TEST = [row(0, "a", "Stone."), row(1, "a", "Water."), row(2, "b", "Bread."), row(3, "c", "Bread."), row(4, "d", "Ink.")]
NOTHING = {"rows": 0, "knowledge": 0, "groups": 0}


@pytest.mark.parametrize(
    ("uses", "counts", "rows"),
    [
        ({TRAINED: row(0, "x", "Gold."), CHOSEN: row(1, "a", "Silver.", split="train")}, {}, []),
        # A row takes its group along, and knowledge the rows that have it; another turn leaks its dialogue.
        ({TRAINED: row(0, "x", "STONE", split="train")}, {TRAINED: {"rows": 1, "knowledge": 1, "groups": 1}}, [0, 1]),
        ({CHOSEN: row(9, "x", "bread")}, {CHOSEN: NOTHING | {"knowledge": 1}}, [2, 3]),
        ({CALIBRATED: row(9, "a", "Silver.")}, {CALIBRATED: NOTHING | {"groups": 1}}, [0, 1]),
    ],
)
def test_rows_leak_by_themselves_their_knowledge_and_their_group(
    uses: dict[str, Example], counts: dict[str, dict[str, int]], rows: list[int]
) -> None:
    leaks = find_leaks(TEST, SeenRows.of({use: [row_keys([seen])] for use, seen in uses.items()}))
    of_uses = dict.fromkeys((TRAINED, CHOSEN, CALIBRATED), NOTHING) | counts
    assert leaks.to_dict() == {"of": {"rows": 5, "knowledge": 4, "groups": 4}, **of_uses}
    assert leaks.rows.nonzero()[0].tolist() == rows


def origin_of(name: str, examples: list[Example], trained_on: list[Example]) -> Provenance:
    seen = SeenRows.of({TRAINED: [row_keys(trained_on)]})
    model = UsedModel(role="checkpoint", path="runs/x", find_seen=lambda: seen)
    return Provenance.of(name, examples, [model])


def test_of_a_model_of_which_nothing_is_known_no_row_counts_as_seen() -> None:
    unknown = UsedModel(role="judge", path="a server", reason="it is not ours")
    origin = Provenance.of("wow", TEST, [unknown])
    assert not origin.leaked.any()
    assert origin.lines[1:] == ("leaks: unknown for judge a server: it is not ours",)


def test_suppression_chooses_among_the_rows_that_are_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The clean sources have no hallucination; the leaked one has nothing else."""
    labels = [("a", "hallucinated"), ("b", "faithful"), ("c", "faithful")]
    examples = [
        replace(row(number, group, f"Knowledge {group}."), label=label, meta={"model": f"model {number}"})
        for group, label in labels
        for number in range(2)
    ]
    said = [Prediction(id=example.id, label="faithful", score=0.1) for example in examples]
    origin, groups = origin_of("suppression", examples, examples[:1]), {"all": None}
    run = RunFolder(tmp_path)
    options: dict[str, Any] = {"groups": groups, "meta": {}, "num_resamples": 20}
    metrics = report_suppression(run, examples, said, origin=origin, **options)
    assert metrics["test/suppression/all/random/hallucination_rate"].value == pytest.approx(1 / 3)
    left = metrics["test/suppression/without_leaked/all/random/hallucination_rate"]
    assert left.value == 0 and left.n == 2
    assert "2 of 6 rows are not new to runs/x" in capsys.readouterr().out
    origin = origin_of("suppression", examples, examples)
    metrics = report_suppression(run, examples, said, origin=origin, **options)
    assert not any("without_leaked" in name for name in metrics)
    assert "no row is new" in capsys.readouterr().out


def test_a_generators_perplexity_is_given_for_the_rows_that_are_left() -> None:
    rows = np.array([[float(place), 1.0, 1.0] for place in range(len(TEST))])
    origin = origin_of("wow", TEST, TEST[:1])
    report = perplexity_report(TEST, rows, {}, title="test/wow", num_resamples=20, origin=origin)
    assert report.metrics["loss"].value == pytest.approx(2.0)
    assert report.metrics["without_leaked/loss"].value == pytest.approx(3.0)  # of rows 2 to 4
    assert report.facts["models"][0]["leaks"][TRAINED]["groups"] == 1
