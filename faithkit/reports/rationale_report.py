"""The report of a judge's explanations, compared with the dataset's judgements and the paper's figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from faithkit.metrics.rationales import Rationale, Scorer, measure_rationales, select_hallucinated
from faithkit.pages.page_tables import format_percent, format_published, new_number_table
from faithkit.published.published_tables import published_table
from faithkit.reports.report import Report
from faithkit.statistics.metric import Metric

# By metric: what a reader sees, and the column of the paper's table.
SHOWN: Mapping[str, tuple[str, str]] = {
    "rouge_l": ("ROUGE-L", "rouge_l"),
    "bleu_4": ("BLEU-4", "bleu_4"),
    "bertscore_f1": ("BERTScore F1, raw", ""),
    "bertscore_rescaled": ("BERTScore F1, rescaled", "bert_score"),
    "located_rate": ("quoted parts in response", ""),
    "char_f1": ("gold spans: F1", ""),
    "char_precision": ("  precision", ""),
    "char_recall": ("  recall", ""),
}
PREFIX, OF_HALLUCINATED = "rationale/", "rationale/hallucinated_"
NUM_PUBLISHED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Counts the rows, and those that lack a target, a reply or a readable verdict."""

    rows: int
    without_target: int
    without_reply: int
    unparsed: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Writes a line for each count that is not 0."""
        counts = {
            "have no target: rationales leave them out": self.without_target,
            "got no reply in words: rationales leave them out": self.without_reply,
            "got no readable verdict: their rationale counts as an empty one": self.unparsed,
        }
        return tuple(f"{number:,} of {self.rows:,} rows {what}" for what, number in counts.items() if number)


def rationale_report(
    rows: Sequence[Rationale],
    left_out: LeftOut,
    *,
    scorer: Scorer | None = None,
    baseline: float | None = None,
    notes: Sequence[str] = (),
    dataset: str = "",
    num_resamples: int = 1000,
) -> Report:
    """Computes `rationale/rouge_l` and so on, for hallucinated responses `rationale/hallucinated_rouge_l`.

    Args:
        dataset: The dataset to show published figures of; empty for none.
    """
    measured = measure_rationales(rows, scorer, baseline)
    scored = measured.scored(num_resamples=num_resamples)
    metrics = {f"{PREFIX}{name}": metric for name, metric in scored.metrics.items()}
    columns = {f"all {len(rows):,} rows": scored.metrics}
    wrong, number = select_hallucinated(measured, rows)
    if 0 < number < len(rows):
        found = wrong.scored(num_resamples=num_resamples).metrics
        columns[f"{number:,} hallucinated"] = found
        metrics |= {f"{OF_HALLUCINATED}{name}": metric for name, metric in found.items()}
    # The report of the labels notes few groups already.
    scored_notes = [note for note in scored.notes if "groups" not in note]
    table = _table(columns, dataset)
    return Report(metrics=metrics, tables=(table,), notes=(*left_out.notes, *notes, *scored_notes))


def _table(columns: Mapping[str, Mapping[str, Metric]], dataset: str) -> Table:
    published = published_table("halludial_rationales") if dataset == "halludial" else None
    best = sorted(published.rows, key=lambda row: -row["rouge_l"])[:NUM_PUBLISHED] if published else []
    heads = [*columns, *(f"{row['system']} *" for row in best)]
    table = new_number_table("the judge's explanations against the dataset's judgements", "metric", heads)
    for name, (shown, column) in SHOWN.items():
        if any(name in found for found in columns.values()):
            ours = [format_percent(found.get(name)) for found in columns.values()]
            theirs = [format_published(row.get(column)) for row in best]
            table.add_row(shown, *ours, *theirs)
    lines = ["percent; whole replies against whole targets; 95% intervals over groups"]
    if published:
        lines.append(f"* the best of {published.citation}: {published.protocol}; {published.note}")
    table.caption = Text("\n".join(lines))
    return table
