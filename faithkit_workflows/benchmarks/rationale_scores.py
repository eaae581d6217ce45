"""Scores the rationales of a judge against the judgements of the dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from faithkit.metrics.rationales import Rationale, Scorer, measure_rationales, select_hallucinated
from faithkit.metrics.responses.bert_score import load_with_baseline
from faithkit.pages.page_tables import format_percent, format_published, new_number_table
from faithkit.published.figures import published_table
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction, Span
from faithkit.reports.report import Report
from faithkit.statistics.metric import Metric
from judge.reply import locate_all, quoted_parts, read_list

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
MAX_VERDICT_WORDS = 5  # a longer reply contains a rationale


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


def has_rationales(predictions: Mapping[str, Prediction]) -> bool:
    """Returns whether any parsed reply is longer than a verdict."""
    parsed = (one for one in predictions.values() if one.label not in (None, UNPARSED))
    return any(len(one.text.split()) > MAX_VERDICT_WORDS for one in parsed)


def score_rationales(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    block: Mapping[str, Any],
    *,
    dataset: str,
    num_resamples: int,
) -> Report | None:
    """Reports a judge's replies against the dataset's judgements; returns None if either has no rationales.

    Args:
        block: The block `benchmark`, whose `bert_score` may name an encoder.
        dataset: The dataset whose published figures are shown too; empty for none.
    """
    if not any(example.target for example in examples) or not has_rationales(predictions):
        return None
    rationales, left_out = read_rationales(examples, predictions)
    if not rationales:
        return None
    names, scorer, baseline, notes = block.get("bert_score") or {}, None, None, []
    if encoder := names.get("encoder"):
        scorer, baseline = load_with_baseline(**names)
        if baseline is None:
            reason = f"{encoder} has no published baseline (benchmark.bert_score.baseline=NUMBER)"
            notes.append(f"rescaled BERTScore is left out: {reason}")
    else:
        notes.append("BERTScore is left out: no encoder is given (benchmark.bert_score.encoder=minilm)")
    options: dict[str, Any] = {"scorer": scorer, "baseline": baseline, "notes": notes, "dataset": dataset}
    return rationale_report(rationales, left_out, num_resamples=num_resamples, **options)


def read_rationales(
    examples: Sequence[Example], predictions: Mapping[str, Prediction]
) -> tuple[list[Rationale], LeftOut]:
    """Pairs each reply with the target of its example, and counts the rows that lack either."""
    rationales = []
    without_target = without_reply = unparsed = 0
    for example in examples:
        prediction = predictions[example.id]
        is_unparsed = prediction.label == UNPARSED
        if not example.target:
            without_target += 1
            continue
        if not prediction.text.strip() and not is_unparsed:
            without_reply += 1
            continue
        unparsed += is_unparsed
        parts = parse_parts(prediction.text) if prediction.label == HALLUCINATED else []
        spans, num_missed = locate_all(parts, example.response)
        rationales.append(
            Rationale(
                group=example.group,
                reply="" if is_unparsed else prediction.text,
                target=example.target,
                hallucinated=example.label == HALLUCINATED,
                num_quoted=len(parts),
                num_located=len(parts) - num_missed,
                spans=spans,
                gold=gold_spans(example),
            )
        )
    counts = {"without_target": without_target, "without_reply": without_reply, "unparsed": unparsed}
    return rationales, LeftOut(rows=len(examples), **counts)


def parse_parts(text: str) -> list[str]:
    """Parses the hallucinated parts in a reply: the items of a list, else quotations."""
    listed = read_list(text)
    return quoted_parts(text) if listed is None else listed


def gold_spans(example: Example) -> tuple[Span, ...] | None:
    """Returns the dataset's spans, else the quotations of its judgement; None if one is not found."""
    if example.spans is not None:
        return example.spans
    if example.label != HALLUCINATED:
        return ()
    spans, num_missed = locate_all(quoted_parts(example.target or ""), example.response)
    return spans if spans and not num_missed else None


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
    rows = (
        [
            shown,
            *(format_percent(found.get(name)) for found in columns.values()),
            *(format_published(row.get(column)) for row in best),
        ]
        for name, (shown, column) in SHOWN.items()
        if any(name in found for found in columns.values())
    )
    lines = ["percent; whole replies against whole targets; 95% intervals over groups"]
    if published:
        lines.append(f"* the best of {published.citation}: {published.protocol}; {published.note}")
    title, heads = "the judge's explanations against the dataset's judgements", [f"{row['system']} *" for row in best]
    return new_number_table(title, "metric", [*columns, *heads], rows, caption=lines)
