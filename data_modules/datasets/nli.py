"""Natural language inference corpora: MultiNLI, SNLI, Dialogue NLI and ConjNLI, premise as knowledge.

Entailment is faithful. Contradiction is hallucinated, and so is neutral, which the premise does not support, unless
`neutral` drops it. A pair on which the annotators did not agree (`-`) is dropped.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from data_modules.reading import SPLITS, File, HubSplit, Patterns, ReadReport, Row, Source, text_group
from faithkit.records import FAITHFUL, HALLUCINATED, Example

MNLI_ADDRESS, SNLI_ADDRESS = "https://cims.nyu.edu/~sbowman/multinli/", "https://nlp.stanford.edu/projects/snli/"
# Premise, hypothesis and label, in the official files of MNLI and SNLI and on the hub.
COLUMN_NAMES = {"official": ("sentence1", "sentence2", "gold_label"), "hub": ("premise", "hypothesis", "label")}
NO_GOLD = "no gold label"
WORDS = {"entailment": "entailment", "neutral": "neutral", "contradiction": "contradiction", "-": NO_GOLD}
# The hub's copies of MNLI and SNLI number the labels.
NUMBERS = {"0": "entailment", "1": "neutral", "2": "contradiction", "-1": NO_GOLD}
DNLI_LABELS = {"positive": "entailment", "neutral": "neutral", "negative": "contradiction"}


@dataclass(frozen=True, kw_only=True)
class NliSource(Source):
    """An inference corpus: a subclass declares the files, and which fields of a row make a pair.

    Args:
        neutral: Treats neutral pairs as hallucinated, or drops them: `hallucinated` or `drop`.
    """

    options_for_all_rows: ClassVar[Mapping[str, Any]] = {"neutral": HALLUCINATED}
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {"neutral": ("drop", HALLUCINATED)}
    neutral: str = HALLUCINATED

    def pair(
        self,
        row: Row,
        split: str,
        report: ReadReport,
        *,
        names: tuple[str, str, str],
        labels: Mapping[str, str],
        id: str,
        group: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Iterator[Example]:
        """Yields the record of one pair, or counts it as dropped.

        Args:
            names: Fields of premise, hypothesis and label.
            labels: The corpus's labels to entailment, neutral, contradiction or `no gold label`.
            group: The id of the premise; None makes one from its text.
        """
        premise, hypothesis = row.text(names[0]), row.text(names[1])
        relation = row.choice(names[2], labels)
        if relation == NO_GOLD or (relation == "neutral" and self.neutral == "drop"):
            report.count(f"dropped: {relation}")
            return
        yield Example(
            id=id,
            source=self.name,
            split=split,
            group=group or text_group(premise),
            knowledge=premise,
            response=hypothesis,
            label=FAITHFUL if relation == "entailment" else HALLUCINATED,
            # The corpus's word; the hub's numbers mean nothing to a reader.
            tags=(relation if labels is NUMBERS else " ".join(row.text(names[2]).split()),),
            meta=meta or {},
        )


@dataclass(frozen=True, kw_only=True)
class Mnli(NliSource):
    """MultiNLI (Williams et al. 2018): pairs of ten genres.

    Official files: JSON lines, or GLUE's MNLI folder (TSV, unquoted). The test set has no labels. `validation` is the
    matched set; the mismatched one is `validation_mismatched`.

    Args:
        path: Folder, one file, or `hub`.
    """

    name: ClassVar[str] = "mnli"
    default_split: ClassVar[str] = "validation"
    ids_repeat: ClassVar[bool] = True
    embedded_layout: ClassVar[str | None] = "mnli"
    address: ClassVar[str] = MNLI_ADDRESS
    official_files: ClassVar[Sequence[Patterns]] = (
        {
            "train": ["multinli_1.0_train.jsonl"],
            "validation": ["multinli_1.0_dev_matched.jsonl"],
            "validation_mismatched": ["multinli_1.0_dev_mismatched.jsonl"],
        },
        {"train": ["train.tsv"], "validation": ["dev_matched.tsv"], "validation_mismatched": ["dev_mismatched.tsv"]},
    )
    hub_splits: ClassVar[Mapping[str, File]] = {
        split: HubSplit(dataset="nyu-mll/multi_nli", split=name, address=MNLI_ADDRESS)
        for split, name in (
            ("train", "train"),
            ("validation", "validation_matched"),
            ("validation_mismatched", "validation_mismatched"),
        )
    }

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        layout = row.layout({layout: (*names, "pairID", "promptID") for layout, names in COLUMN_NAMES.items()})
        yield from self.pair(
            row,
            split,
            report,
            names=COLUMN_NAMES[layout],
            labels=WORDS if layout == "official" else NUMBERS,
            id=row.text("pairID"),
            group=row.text("promptID"),
            meta={"genre": row.values.get("genre")},
        )


@dataclass(frozen=True, kw_only=True)
class Snli(NliSource):
    """SNLI (Bowman et al. 2015): image captions and hypotheses about them; the group is the premise's text.

    The hub's copy has no pair ids: its rows are numbered.

    Args:
        path: Folder, one file, or `hub`.
    """

    name: ClassVar[str] = "snli"
    ids_repeat: ClassVar[bool] = True
    embedded_layout: ClassVar[str | None] = "snli"
    address: ClassVar[str] = SNLI_ADDRESS
    official_files: ClassVar[Sequence[Patterns]] = (
        {"train": ["snli_1.0_train.jsonl"], "validation": ["snli_1.0_dev.jsonl"], "test": ["snli_1.0_test.jsonl"]},
    )
    hub_splits: ClassVar[Mapping[str, File]] = {
        split: HubSplit(dataset="stanfordnlp/snli", split=split, address=SNLI_ADDRESS) for split in SPLITS
    }

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        layout = row.layout({"official": (*COLUMN_NAMES["official"], "pairID"), "hub": COLUMN_NAMES["hub"]})
        official = layout == "official"
        yield from self.pair(
            row,
            split,
            report,
            names=COLUMN_NAMES[layout],
            labels=WORDS if official else NUMBERS,
            id=row.text("pairID") if official else row.default_id,
        )


@dataclass(frozen=True, kw_only=True)
class DialogueNli(NliSource):
    """Dialogue NLI (Welleck et al. 2019): sentences of persona chats; the group is the first sentence's text.

    Each file is one JSON list, in spite of its suffix. The archive's extra training file is truncated and not read.

    Args:
        path: Folder or file.
    """

    name: ClassVar[str] = "dnli"
    ids_repeat: ClassVar[bool] = True
    embedded_layout: ClassVar[str | None] = "dnli"
    address: ClassVar[str] = "https://wellecks.com/dialogue_nli/"
    official_files: ClassVar[Sequence[Patterns]] = (
        {
            "train": ["**/dialogue_nli_train.jsonl"],
            "validation": ["**/dialogue_nli_dev.jsonl"],
            "test": ["**/dialogue_nli_test.jsonl"],
            "test_verified": ["**/dialogue_nli_verified_test.jsonl"],
        },
    )

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        names = ("sentence1", "sentence2", "label")
        row.layout({"official": (*names, "id")})
        meta = {"dtype": row.values["dtype"]} if "dtype" in row.values else {}
        yield from self.pair(row, split, report, names=names, labels=DNLI_LABELS, id=row.text("id"), meta=meta)


@dataclass(frozen=True, kw_only=True)
class ConjNli(NliSource):
    """ConjNLI (Saha et al. 2020): inference over conjunctions; the group is the premise's text.

    Files of folder `data/NLI` (TSV, unquoted, with a byte order mark). The test file has no label column.

    Args:
        path: Folder or file.
    """

    name: ClassVar[str] = "conjnli"
    default_split: ClassVar[str] = "validation"
    embedded_layout: ClassVar[str | None] = "conjnli"
    address: ClassVar[str] = "https://github.com/swarnaHub/ConjNLI, folder data/NLI"
    official_files: ClassVar[Sequence[Patterns]] = (
        {"train": ["adversarial_train_15k.tsv"], "validation": ["conj_dev.tsv"], "test": ["conj_test.tsv"]},
    )

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        names = ("Premise", "Hypothesis", "Label")
        if row.layout({"labelled": names, "unlabelled": names[:2]}) == "labelled":
            yield from self.pair(row, split, report, names=names, labels=WORDS, id=row.default_id)
            return
        report.count("unlabelled")
        knowledge, response = row.text("Premise"), row.text("Hypothesis")
        shared: dict[str, Any] = {"source": self.name, "split": split, "group": text_group(knowledge)}
        yield Example(id=row.default_id, knowledge=knowledge, response=response, **shared)
