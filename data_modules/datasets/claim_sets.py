"""LLM-AggreFact (Tang et al. 2024) and TRUE (Honovich et al. 2022): documents with a text to verify, in named sets.

LLM-AggreFact: https://huggingface.co/datasets/lytang/LLM-AggreFact, `data/dev-*.parquet` and `data/test-*.parquet`. A
row has dataset, doc, claim, label (1: supported, 0: not) and contamination_identifier. Whoever gets access agrees to
use it for evaluation alone.

TRUE: https://github.com/google-research/true, whose `src/download_datasets.py` writes one CSV a set, `SET_download.csv`
with the split in some names. A row has grounding, generated_text and label (1: consistent, 0: not), and other columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from data_modules.reading import ANY, BadRow, Names, Patterns, ReadReport, Row, Source, text_group
from faithkit.records import FAITHFUL, HALLUCINATED, Example

SUFFIXES = (".parquet", ".csv", ".jsonl")
AGGREFACT_SETS = (
    *("AggreFact-CNN", "AggreFact-XSum", "TofuEval-MediaS", "TofuEval-MeetB", "Wice", "Reveal", "ClaimVerify"),
    *("FactCheck-GPT", "ExpertQA", "Lfqa", "RAGTruth"),
)
TRUE_FILES = {  # by the files of the official script
    **{f"{name}_download": name for name in ("mnbm", "paws", "q2", "qags_cnndm", "qags_xsum", "summeval")},
    **{f"{name}_dev_download": name for name in ("begin", "fever", "vitc")},
    **{f"{name}_valid_download": name for name in ("dialfact", "frank")},
}
LABELS = {"1": FAITHFUL, "0": HALLUCINATED}


@dataclass(frozen=True, kw_only=True)
class ClaimSets(Source):
    """Pairs in named sets; `meta` has the set of each. The group is the document.

    Args:
        path: A file, or the folder of the files.
        sets: Those to read: one, a list, or `all`.
    """

    fields: ClassVar[tuple[str, str, str]]  # of document, text and label
    set_field: ClassVar[str | None] = None  # of the set's name; None: each set has its file
    options_for_all_rows: ClassVar[Mapping[str, Any]] = {"sets": ANY}
    sets: Names = ANY

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout({self.name: self.fields})
        document, text, label = self.fields
        if self.set_field:
            name = row.choice(self.set_field, {name.lower(): name for name in self.option_names["sets"]})
        elif (stem := Path(row.file).stem) in TRUE_FILES:
            name = TRUE_FILES[stem]
        else:
            hint = "keep the names of the official script"
            raise BadRow(f"the file's name {stem!r} is of no set; known: {', '.join(TRUE_FILES)}", hint=hint)
        if not self._reads("sets", name, report):
            return
        knowledge = row.text(document)
        yield Example(
            id=row.default_id,
            source=self.name,
            split=split,
            group=text_group(knowledge),
            knowledge=knowledge,
            response=row.text(text),
            label=row.choice(label, LABELS),
            meta={"set": name},
        )


@dataclass(frozen=True, kw_only=True)
class AggreFact(ClaimSets):
    """LLM-AggreFact's eleven sets; dev is the validation split."""

    name: ClassVar[str] = "aggrefact"
    embedded_layout: ClassVar[str | None] = "aggrefact"
    official_files: ClassVar[Sequence[Patterns]] = (
        {
            split: [f"**/{stem}*{suffix}" for suffix in SUFFIXES]
            for split, stem in (("validation", "dev"), ("test", "test"))
        },
    )
    address: ClassVar[str] = "https://huggingface.co/datasets/lytang/LLM-AggreFact"
    option_names: ClassVar[Mapping[str, Sequence[str]]] = {"sets": AGGREFACT_SETS}
    fields: ClassVar[tuple[str, str, str]] = ("doc", "claim", "label")
    set_field: ClassVar[str | None] = "dataset"


@dataclass(frozen=True, kw_only=True)
class TrueSets(ClaimSets):
    """TRUE's eleven sets, each in its file; the benchmark has one split."""

    name: ClassVar[str] = "true_sets"
    embedded_layout: ClassVar[str | None] = "true_sets"
    official_files: ClassVar[Sequence[Patterns]] = ({"all": ["*_download.csv"]},)
    address: ClassVar[str] = "https://github.com/google-research/true"
    option_names: ClassVar[Mapping[str, Sequence[str]]] = {"sets": tuple(sorted(TRUE_FILES.values()))}
    fields: ClassVar[tuple[str, str, str]] = ("grounding", "generated_text", "label")
