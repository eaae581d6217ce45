"""WiCE (Kamoi et al. 2023): claims of Wikipedia with the page that they cite, and how far it supports them.

Official files: https://github.com/ryokamoi/wice, folder `data`: `entailment_retrieval/claim/{train,dev,test}.jsonl`,
`entailment_retrieval/subclaim/` (a claim is divided into several) and `non_supported_tokens/` (sub-claims that are
partially supported, with marked tokens). A row has claim, evidence (the page's sentences), label, supporting_sentences
and meta, and in the last folder claim_tokens and non_supported_spans. What is supported in part counts as
hallucinated, as in the paper's task with two classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.reading import File, ReadReport, Row, Source, find_files, read_token_spans, text_group
from faithkit.records import FAITHFUL, HALLUCINATED, Example

CLAIM, SUBCLAIM, TOKENS = UNITS = ("claim", "subclaim", "tokens")
FOLDERS = {CLAIM: "claim", SUBCLAIM: "subclaim", TOKENS: "non_supported_tokens"}
FILES = {"train": "train", "validation": "dev", "test": "test"}
LAYOUT = {"WiCE": ("claim", "evidence", "label", "meta")}
TOKEN_LAYOUT = {"WiCE's unsupported tokens": (*LAYOUT["WiCE"], "claim_tokens", "non_supported_spans")}
LABELS = {"supported": FAITHFUL, "partially_supported": HALLUCINATED, "not_supported": HALLUCINATED}


@dataclass(frozen=True, kw_only=True)
class Wice(Source):
    """Claims with the sentences of a page as lines; `tags` has the label of three classes. The group is the page.

    Args:
        path: The folder `data`, a folder with the folder of the units, or a file.
        units: `claim`, `subclaim`, or `tokens` (sub-claims that are supported in part, with spans).
    """

    name: ClassVar[str] = "wice"
    embedded_layout: ClassVar[str | None] = "wice"
    address: ClassVar[str] = "https://github.com/ryokamoi/wice"
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {"units": UNITS}
    units: str = CLAIM

    def files(self) -> Mapping[str, Sequence[File]]:
        patterns = {split: [f"**/{FOLDERS[self.units]}/{name}.jsonl"] for split, name in FILES.items()}
        return find_files(self.path, patterns, address=self.address)

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(TOKEN_LAYOUT if self.units == TOKENS else LAYOUT)
        claim, page = row.text("claim"), "\n".join(row.texts("evidence"))
        label = row.choice("label", LABELS)
        is_marked = self.units == TOKENS
        yield Example(
            id=row.inside(row.values["meta"]).text("id"),
            source=self.name,
            split=split,
            group=text_group(page),
            knowledge=page,
            response=claim,
            label=label,
            spans=read_token_spans(row, "claim_tokens", "non_supported_spans", claim) if is_marked else None,
            tags=(str(row.values["label"]),),
        )
