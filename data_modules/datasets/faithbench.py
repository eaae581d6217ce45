"""FaithBench (Bao et al. 2025): summaries of ten models with spans that annotators marked, at three levels.

Official files: https://github.com/vectara/FaithBench, `data_for_release/batch_*.json`. Each is one object whose
`samples` have sample_id (within the batch), source, summary, annotations and metadata (with the summarizer). An
annotation has annotator_id, a list of labels, summary_span, summary_start and summary_end; several annotators may mark
one part. Labels are Unwanted, Unwanted.Intrinsic, Unwanted.Extrinsic, Questionable and Benign; what nobody marked is
consistent. A sample is of its worst label, and questionable ones are hallucinated, as in the release's binarize.py
(which gives samples without annotations 0, its label of hallucinated ones; here they are faithful). The repository's
FaithBench.csv has 800 summaries, these files 750.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from data_modules.reading import (
    BadRow,
    Patterns,
    ReadReport,
    Row,
    Source,
    locate_span,
    reading,
    text_group,
    whole_number,
)
from faithkit.errors import shorten
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Span, span_type

LAYOUT = {"a batch of FaithBench": ("samples",)}
LEVELS = ("consistent", "benign", "questionable", "unwanted")  # the worst is last
DROP = "drop"
CHOICES = (HALLUCINATED, FAITHFUL, DROP)


@dataclass(frozen=True, kw_only=True)
class FaithBench(Source):
    """Summaries with spans: those of annotations that make a summary hallucinated. The group is the source text.

    Args:
        path: A batch, or the folder of the batches, or the repository. There is no official split.
        questionable: What becomes of summaries that are questionable at worst, and of such spans.
        benign: The same for benign ones.
    """

    name: ClassVar[str] = "faithbench"
    embedded_layout: ClassVar[str | None] = "faithbench"
    official_files: ClassVar[Sequence[Patterns]] = ({"all": ["**/batch_[0-9].json", "**/batch_[0-9][0-9].json"]},)
    address: ClassVar[str] = "https://github.com/vectara/FaithBench"
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {"questionable": CHOICES, "benign": CHOICES}
    options_for_all_rows: ClassVar[Mapping[str, Any]] = {"questionable": HALLUCINATED, "benign": FAITHFUL}
    questionable: str = HALLUCINATED
    benign: str = FAITHFUL

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUT)
        for place, values in enumerate(row.items("samples")):
            with report.rejecting(row, f"samples[{place}]", values):  # the other samples of the batch are read
                if (example := self._example(row.inside(values), split, report)) is not None:
                    yield example

    def _example(self, sample: Row, split: str, report: ReadReport) -> Example | None:
        number, source, summary = whole_number(sample, "sample_id"), sample.text("source"), sample.text("summary")
        marked: list[tuple[str, Span]] = []
        tags: list[str] = []
        for place, values in enumerate(sample.items("annotations")):
            with reading(f"annotations[{place}]"):
                note = sample.inside(values)
                labels = note.texts("label")
                if not labels:
                    report.count("annotations without a label, left out")
                    continue
                bounds = whole_number(note, "summary_start"), whole_number(note, "summary_end")
                span = locate_span(note.text("summary_span", empty_ok=True), *bounds, summary, report)
                levels = [label.partition(".")[0].strip().lower() for label in labels]
                for label, level in zip(labels, levels, strict=True):
                    if level not in LEVELS[1:]:
                        known = "Unwanted, Questionable, Benign, Unwanted.Intrinsic, ..."
                        raise BadRow(f"field 'label' has {shorten(label)}; known: {known}")
                worst = max(levels, key=LEVELS.index)
                label = max(label.strip() for label in labels if label.strip().lower().startswith(worst))
                marked.append((worst, replace(span, **span_type(self.name, label))))
                tags += labels
        level = max((each for each, _ in marked), key=LEVELS.index, default=LEVELS[0])
        meaning = {"consistent": FAITHFUL, "unwanted": HALLUCINATED}
        meaning |= {"questionable": self.questionable, "benign": self.benign}
        if meaning[level] == DROP:
            report.count(f"dropped: {level}")
            return None
        # Annotators who mark the same part give one span, of the worst level.
        marked.sort(key=lambda each: LEVELS.index(each[0]))
        spans = {(span.start, span.end): span for each, span in marked if meaning[each] == HALLUCINATED}
        metadata = sample.inside(sample.values.get("metadata") or {})
        return Example(
            id=f"{Path(sample.file).stem}:{number}",
            source=self.name,
            split=split,
            group=text_group(source),
            knowledge=source,
            response=summary,
            label=meaning[level],
            spans=tuple(spans[place] for place in sorted(spans)),
            tags=tuple(dict.fromkeys(tags)),
            meta={"task": "Summary", "model": metadata.text("summarizer", empty_ok=True), "level": level},
        )
