"""SummEdits (Laban et al. 2023): summaries of ten kinds of documents, edited in places and judged consistent or not.

Official files: https://github.com/salesforce/factualNLG, `data/summedits/summedits_DOMAIN.json`, each a JSON list of
{id, doc, summary, label, original_summary, edit_types, split}. Label 1 is consistent. The split `evaluation` has the
edits of a few documents, on which prompts and thresholds can be chosen; `test` has the others. The paper's figures are
of both together, by domain.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from data_modules.reading import ANY, BadRow, File, Names, ReadReport, Row, Source, find_files, text_group
from faithkit.records import FAITHFUL, HALLUCINATED, Example

PREFIX = "summedits_"
DOMAINS = (
    *("news", "podcast", "billsum", "samsum", "sales_call", "sales_email", "shakespeare", "scitldr", "qmsumm"),
    "ectsum",
)
LAYOUT = {"SummEdits": ("id", "doc", "summary", "label", "edit_types")}
LABELS = {"1": FAITHFUL, "0": HALLUCINATED}
SPLIT_NAMES = {"evaluation": "validation", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class SummEdits(Source):
    """Summaries with their domain and the types of their edits. The group is the document.

    Args:
        path: The folder of the files, or one of them.
        domains: Those to read: one, a list, or `all`.
        official_split: False reads both splits as one, `all`, as the paper's figures do.
    """

    name: ClassVar[str] = "summedits"
    embedded_layout: ClassVar[str | None] = "summedits"
    address: ClassVar[str] = "https://github.com/salesforce/factualNLG"
    option_names: ClassVar[Mapping[str, Sequence[str]]] = {"domains": DOMAINS}
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {"official_split": (True, False)}
    options_for_all_rows: ClassVar[Mapping[str, Any]] = {"domains": ANY}
    domains: Names = ANY
    official_split: bool = True

    def files(self) -> Mapping[str, Sequence[File]]:
        """Every file for each split, since rows name their split."""
        files = find_files(self.path, {ANY: [f"**/{PREFIX}*.json"]}, address=self.address)[ANY]
        return dict.fromkeys(SPLIT_NAMES.values() if self.official_split else (ANY,), files)

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUT)
        if self.official_split and row.choice("split", SPLIT_NAMES) != split:
            return
        domain = Path(row.file).stem.removeprefix(PREFIX)
        if domain not in DOMAINS:
            hint = "keep the names of the release"
            raise BadRow(f"the file's name is of no domain: {domain!r}; known: {', '.join(DOMAINS)}", hint=hint)
        if not self._reads("domains", domain, report):
            return
        document = row.text("doc")
        yield Example(
            id=row.text("id"),
            source=self.name,
            split=split,
            group=text_group(document),
            knowledge=document,
            response=row.text("summary"),
            original=row.text("original_summary", empty_ok=True) or None,
            label=row.choice("label", LABELS),
            tags=tuple(row.texts("edit_types")),
            meta={"task": "Summary", "domain": domain},
        )
