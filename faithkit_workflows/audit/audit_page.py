"""The report of an audit: conclusions in words, tables, examples, and a page of every changed copy with its marks."""

from pathlib import Path

from markupsafe import Markup
from rich.table import Table

from faithkit.pages.page import AnswerSet, fill_part, write_filled_page, write_page
from faithkit.pages.page_tables import (
    escape_terminal,
    format_percent,
    new_number_table,
    print_tables,
)
from faithkit.records import Prediction
from faithkit.reports.report import score_table
from faithkit.reports.span_report import mark_spans
from faithkit.scores.measures import titles_of
from faithkit_workflows.audit.measures import COPIED, DESCRIPTIONS, LATE, LONG
from faithkit_workflows.audit.mutations import ORIGINAL, TYPE, TYPES, UNCHANGED
from faithkit_workflows.audit.protocol import MAX_RECALL, VERSION, Audit

PAGE, ANSWERS_PAGE = "audit.html", "answers.html"
MAX_EXAMPLES = 3  # of each kind
MAX_CHARACTERS, MAX_NAME = 240, 40
SHOWN = titles_of(("macro_f1", "auroc"))
Section = tuple[list[str], list[Table]]  # conclusions, and the tables that show them
LIMITS = "The protocol knows few faults: to have none of them does not show that the detector is right."


def describe_faults(audit: Audit) -> list[str]:
    """States the result in one sentence, then each fault with its figure, weaknesses, and the strongest baseline."""
    lines = [audit.headline, *(f"{fault.name}: {fault.text}" for fault in audit.faults)]
    if audit.weak_on:
        found = ", ".join(f"{name} {format_percent(rate)}" for name, rate in audit.weak_on.items())
        lines.append(f"weak on: {found} (percent found; the interval is below {100 * MAX_RECALL:.0f})")
    if (against := audit.figures.against_overlap) is not None:
        lines.append(f"against word overlap: {against.text}")
    return lines if audit.faults else [*lines, LIMITS]


def report_detection(audit: Audit) -> Section:
    """States how many changes are found, and which; the table shows each type of change."""
    found, overlap = audit.figures.detection, audit.figures.overlap
    rows = [
        [
            name,
            f"{found.found[name].n:,}",
            format_percent(found.found[name]),
            format_percent(overlap.found.get(name), bounds=False),
            format_percent(found.unmoved.get(name), bounds=False),
        ]
        for name in TYPES
        if name in found.found
    ]
    if found.false_alarms is not None:
        by_overlap = format_percent(overlap.false_alarms, bounds=False)
        rows.append([UNCHANGED, f"{found.false_alarms.n:,}", format_percent(found.false_alarms), by_overlap, "-"])
    heads = ("rows", "called hallucinated", "by word overlap", "same verdict")
    line = "percent, 95% intervals over documents; same verdict: exactly the label and probability of the original"
    tables = [new_number_table("Changed copies of documents", "type", heads, rows, caption=[line])]
    if found.score is None:
        return ["No changed copy has a verdict."], tables
    lines = []
    lines.append(
        f"Of {found.score.n:,} copies changed in one place, {format_percent(found.score)}% are called hallucinated "
        f"while their original is not (the mutation score). {format_percent(found.false_alarms)}% of the unchanged "
        "originals are called hallucinated."
    )
    lines.append(
        f"Calling each answer with a word that the context lacks hallucinated finds "
        f"{format_percent(overlap.score)}%; this baseline fails on paraphrases, which are not among them."
    )
    ordered = sorted(found.found, key=lambda name: found.found[name].value)
    if len(ordered) > 1:
        best, worst = ordered[-1], ordered[0]
        lines.append(
            f"It finds the type '{best}' most often ({format_percent(found.found[best])}%), and '{worst}' most rarely "
            f"({format_percent(found.found[worst])}%)."
        )
    if found.marked is not None and found.precision is not None:
        lines.append(
            f"Where it finds a change, a mark lies on it in {format_percent(found.marked)}% of cases; "
            f"{100 * found.precision:.0f}% of the marked characters are changed ones."
        )
    else:
        lines.append("It marks no characters.")
    return lines, tables


def report_invariance(audit: Audit) -> Section:
    """States for each variant how often the label changes; the table shows in which direction."""
    done = audit.figures.invariance
    rows = [
        [name, f"{one.changed.n:,}", format_percent(one.changed), f"{one.to_hallucinated:,}", f"{100 * one.moved:.1f}"]
        for name, one in done.comparisons.items()
    ]
    heads = ("rows", "label changes", "to hallucinated", "moved")
    line = "percent, 95% intervals over documents; moved: label, or probability by more than 0.01"
    tables = [new_number_table("Changes that must not matter", "variant", heads, rows, caption=[line])]
    lines = [
        f"The label changes on {format_percent(one.changed)}% of rows {DESCRIPTIONS[name]}."
        for name, one in done.comparisons.items()
        if one.examples
    ]
    if constant := [DESCRIPTIONS[name] for name, one in done.comparisons.items() if not one.examples]:
        lines.append(f"It never changes {'; '.join(constant)}.")
    if done.copies is not None:
        lines.append(f"{format_percent(done.copies)}% of sentences copied from their source are called hallucinated.")
    return lines if done.comparisons else ["No row has a verdict for two variants."], tables


def report_accuracy(audit: Audit) -> Section:
    """States accuracy, calibration and whether the threshold fits.

    The tables show the detector beside simple baselines, and the hallucinated share by its probability.
    """
    accuracy = audit.figures.accuracy
    if accuracy is None:
        if not audit.material.rows:
            missing = "accuracy, calibration and the threshold are not measured: add rows=FILE."
            return [f"No labelled rows were given, so {missing}"], []
        return [f"{len(audit.material.rows):,} labelled rows are too few, or have one label only."], []
    metrics = accuracy.systems[audit.target]
    text = accuracy.conclusion.text
    lines = [f"{text[:1].upper() + text[1:] if not text.startswith(audit.target) else text}."]
    if error := metrics.get("ece_debiased"):
        lines.append(f"Its probabilities are off by {format_percent(error)} points in the mean (calibration error).")
    if (gain := accuracy.refitted) is not None:
        figure = f"{100 * gain.value:+.1f} [{100 * gain.low:.1f}, {100 * gain.high:.1f}]"
        verdict = "does not transfer to these rows" if gain.low > 0 else "transfers to these rows"
        lines.append(f"Its threshold {verdict}: one fitted on other rows of the table changes macro-F1 by {figure}.")
    line = (
        "percent, 95% intervals over groups; baselines and the other threshold are fitted on the other rows, by folds"
    )
    tables = [score_table("Accuracy on labelled rows", "system", SHOWN, accuracy.systems.items(), caption=[line])]
    if accuracy.bins:
        rows = (
            [f"{one.low:.1f} to {one.high:.1f}", f"{one.count:,}", f"{one.mean_score:.2f}", f"{one.hallucinated:.2f}"]
            for one in accuracy.bins
        )
        heads = ("rows", "mean probability", "hallucinated share")
        tables.append(new_number_table("Calibration", "P(hallucinated)", heads, rows))
    return lines, tables


def describe_examples(audit: Audit) -> list[str]:
    """Shows changes that are missed, false alarms, and rows whose label changes, with the changed part in brackets."""
    detection, invariance = audit.figures.detection, audit.figures.invariance
    first_missed = {str(audit.rows[id_].meta[TYPE]): id_ for id_ in reversed(detection.missed)}
    chosen = [(f"missed {name}", id_, str(audit.rows[id_].meta[ORIGINAL])) for name, id_ in first_missed.items()]
    chosen += [("false alarm", id_, "") for id_ in detection.alarms[:MAX_EXAMPLES]]
    for name, one in invariance.comparisons.items():
        for id_ in one.examples[:MAX_EXAMPLES]:
            base = id_.partition("/")[2]
            chosen.append((name, id_, f"{LONG}/{base}" if name == LATE else base))
    chosen += [(COPIED, id_, "") for id_ in invariance.copied[:MAX_EXAMPLES]]
    lines = []
    for what, id_, before in chosen:
        row = audit.rows[id_]
        shown = mark_spans(row.response, row.spans or (), context=80, max_characters=MAX_CHARACTERS)
        was = f", before {_verdict(audit.answers[before])}" if before else ""
        lines.append(f"{what}: {shown} ({_verdict(audit.answers[id_])}{was})")
    return lines or ["No verdict was wrong, and none changed."]


def _verdict(prediction: Prediction) -> str:
    return f"{prediction.label}{'' if prediction.score is None else f' {prediction.score:.2f}'}"


def report_audit(folder: Path, audit: Audit) -> None:
    """Writes the report, and the page of changed copies and labelled rows with marks; prints verdict and tables."""
    figures, faults = audit.figures, describe_faults(audit)
    detection, invariance, accuracy = report_detection(audit), report_invariance(audit), report_accuracy(audit)
    names = {"length": "the length of the answer", "overlap": "the share of its words that the context lacks"}
    by = " and by ".join(f"{names[key]} with an AUROC of {100 * value:.1f}" for key, value in figures.explained.items())
    explained = f"The detector's labels are predicted by {by} (50 is chance, 100 is all of it)."
    if not figures.explained:
        explained = "Too few answers have a verdict, or nearly all have the same."
    counts = [*audit.problems.most_common(), *audit.material.left_out.most_common()]
    left_out = [f"{reason} ({count:,})" for reason, count in counts] or ["Everything was audited."]
    speed = "" if audit.row_seconds is None else f", {audit.row_seconds:.3g} seconds each in the median"
    left_out.append(f"{figures.num_asked:,} rows were asked for{speed}; the audit took {audit.seconds:.0f} seconds.")
    contents: list[tuple[str, str, list[str], list[Table]]] = [
        ("verdict", "Verdict", faults, []),
        ("changes", "Changed copies of documents", *detection),
        ("invariance", "Changes that must not matter", *invariance),
        ("explained", "Length and overlap", [explained], []),
        ("accuracy", "Accuracy, calibration, threshold", *accuracy),
        ("examples", "Examples", describe_examples(audit), []),
        ("left-out", "What was not audited, and time", left_out, []),
    ]
    sections = []
    for name, title, lines, tables in contents:
        parts = [fill_part("points", lines, MAX_NAME), *(fill_part("table", table) for table in tables)]
        sections.append((name, title, Markup().join(parts)))
    summary = [
        f"Protocol {VERSION}. Documents: {audit.material.source} ({len(audit.material.documents):,}). "
        f"Labelled rows: {len(audit.material.rows):,}.",
        audit.headline,
    ]
    text = "All changed copies and labelled rows, with marks"
    link = Markup('<p class="summary"><a href="{}">{}</a></p>').format(ANSWERS_PAGE, text)
    judged = [row for row in (*audit.cases, *audit.material.rows) if row.id in audit.answers]
    if judged:
        types = {row.id: str(row.meta.get(TYPE, "labelled row")) for row in judged}
        answers = {row.id: audit.answers[row.id] for row in judged}
        shown = AnswerSet(name="audit", examples=judged, predictions=answers, by={"type of change": types})
        write_page(folder / ANSWERS_PAGE, [shown], title=f"Answers of the audit of {audit.target}")
    write_filled_page(
        folder / PAGE,
        "sections.html",
        title=f"Audit of {audit.target}",
        styles=("style.css", "sections.css"),
        summary=fill_part("notes", summary, "summary") + (link if judged else ""),
        sections=sections,
    )
    print_tables(*detection[1], *invariance[1])
    lines = ["", *detection[0][:1], explained, *accuracy[0], "", "Verdict:", *(f"- {line}" for line in faults)]
    print("\n".join(escape_terminal(line) for line in lines))
    print(f"report: {escape_terminal(str(folder / PAGE))}")
