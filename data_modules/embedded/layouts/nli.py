"""NLI corpora: MultiNLI, SNLI, ConjNLI."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_modules.embedded.layouts.common import NumRows, nli_pair, sizes, turns, write_jsonl, write_tsv

MNLI_FILES = {
    "train": ("multinli_1.0_train.jsonl",),
    "validation": ("multinli_1.0_dev_matched.jsonl", "multinli_1.0_dev_mismatched.jsonl"),
}
SNLI_FILES = {"train": "snli_1.0_train.jsonl", "validation": "snli_1.0_dev.jsonl", "test": "snli_1.0_test.jsonl"}
CONJNLI_FILES = {"train": "adversarial_train_15k.tsv", "validation": "conj_dev.tsv", "test": "conj_test.tsv"}
GENRES = (
    ("fiction", "government", "slate", "telephone", "travel"),
    ("facetoface", "letters", "nineeleven", "oup", "verbatim"),
)
LABELS = ("entailment", "neutral", "contradiction")
_UNSURE_EVERY = 40  # one pair in this many has no label that most annotators agreed on
_MISMATCHED_START = 12_000_000


def write_mnli(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes MultiNLI. It has no labelled test set: a test size is taken for its matched and mismatched dev files."""
    wanted = sizes(num_rows)
    for split, files in MNLI_FILES.items():
        names = ("validation", "test") if split == "validation" else (split,)
        size = max(wanted.get(name, 0) for name in names)
        for place, file in enumerate(files):
            if size:
                write_jsonl(folder / file, _mnli(split, size, seed, place))
    return folder


def write_snli(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes SNLI."""
    for split, size in sizes(num_rows).items():
        write_jsonl(folder / SNLI_FILES[split], _snli(split, size, seed))
    return folder


def write_conjnli(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes ConjNLI, whose files begin with a byte-order mark."""
    for split, size in sizes(num_rows).items():
        rows = (nli_pair(exchange) for _, exchange in turns(split, size, seed))
        write_tsv(folder / CONJNLI_FILES[split], ("Premise", "Hypothesis", "Label"), rows, bom=True)
    return folder


def _votes(label: str, index: int, many: bool) -> tuple[str, list[str]]:
    """Makes the annotators' votes and the gold label from them; `-` where no label has three of five."""
    if not many:
        return label, [label]
    first, second = (other for other in LABELS if other != label)
    if index % _UNSURE_EVERY == 7:
        return "-", [label, label, first, first, second]
    return label, [label, label, label, first, label]


def _mnli(split: str, size: int, seed: int, place: int) -> Iterator[dict[str, Any]]:
    for index, exchange in turns(split, size, seed, place * _MISMATCHED_START):
        premise, hypothesis, label = nli_pair(exchange)
        gold, votes = _votes(label, index, many=split != "train")
        yield {
            "annotator_labels": votes,
            "genre": GENRES[place][index % 5],
            "gold_label": gold,
            "pairID": f"{index}{label[0]}",
            "promptID": str(index),
            **_sentences(premise, hypothesis),
        }


def _snli(split: str, size: int, seed: int) -> Iterator[dict[str, Any]]:
    for index, exchange in turns(split, size, seed):
        premise, hypothesis, label = nli_pair(exchange)
        gold, votes = _votes(label, index, many=split != "train")
        yield {
            "annotator_labels": votes,
            "captionID": f"{4_000_000 + index}.jpg#{index % 5}",
            "gold_label": gold,
            "pairID": f"{4_000_000 + index}.jpg#{index % 5}r1{label[0]}",
            **_sentences(premise, hypothesis),
        }


def _sentences(premise: str, hypothesis: str) -> dict[str, str]:
    return {
        "sentence1": premise,
        "sentence1_binary_parse": f"( {premise} )",
        "sentence1_parse": f"(ROOT (S {premise}))",
        "sentence2": hypothesis,
        "sentence2_binary_parse": f"( {hypothesis} )",
        "sentence2_parse": f"(ROOT (S {hypothesis}))",
    }
