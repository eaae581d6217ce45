"""Reports of judges: comparisons of two replies, judgements judged by annotators, and scores as official scripts."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from faithkit.baselines.word_features import length_predictions
from faithkit.files.jsonl import ACCURATE, INACCURATE
from faithkit.metrics.classification import classification_metrics, join_outcomes
from faithkit.metrics.judging import BIAS, ORDER, OTHER, comparison_metrics, measure_agreement, predict_pair_baselines
from faithkit.pages.page_tables import (
    add_fields,
    bold,
    choose_examples,
    context_fields,
    escape_terminal,
    format_metric,
    format_percent,
    judge_outcome,
    new_field_table,
)
from faithkit.published.figures import ALL, published_table
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.reports.label_tables import PARTS, divide
from faithkit.reports.report import (
    Provenance,
    Report,
    Row,
    Rows,
    add_provenance,
    published_cells,
    score_table,
    select_rows,
)
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import PROPORTION, Metric

# By metric: the head of its column, and the column of the paper's table.
COMPARISON_COLUMNS: Mapping[str, tuple[str, str]] = {
    "accuracy": ("accuracy", "mean"),
    "accuracy_first": ("first", "hallucinated_first"),
    "accuracy_last": ("last", "hallucinated_last"),
    "both_orders": ("both", ""),
    BIAS: ("bias", ""),
    "invalid_rate": ("inv.", "invalid"),
}
MODEL = "model"
PREFIX_COLUMNS = {"macro_f1": "macro-F1", "accuracy": "acc.", "mean_precision": "P", "mean_recall": "R"}


def comparison_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    dataset: str = "",
    notes: Sequence[str] = (),
    num_resamples: int = 1000,
    num_examples: int = 5,
    origin: Provenance | None = None,
) -> Report:
    """Computes metrics of the judge, of parts of the data (`task/qa/accuracy`) and of baselines (`length_accuracy`).

    Args:
        examples: Both rows of each pair, as `make_both_orders` makes them.
        dataset: The dataset to show published figures of; empty for none.
    """

    def score(rows: Sequence[Example], found: Mapping[str, Prediction]) -> dict[str, Metric]:
        selected = {example.id: found[example.id] for example in rows}
        return comparison_metrics(rows, selected, num_resamples=num_resamples).metrics

    def rescore(marked: Rows) -> Mapping[str, Metric]:
        pairs = np.repeat(marked.reshape(-1, 2).all(axis=1), 2)  # neither row of the pair was seen
        return score(*select_rows(examples, predictions, pairs)) if pairs.any() else {}

    scored = comparison_metrics(examples, predictions, num_resamples=num_resamples)
    shown: dict[str, Mapping[str, Metric]] = {MODEL: scored.metrics}
    metrics = dict(scored.metrics)
    first_fields = {source: fields[:1] for source, fields in PARTS.items()}
    parts = {f"{field}/{value}": rows for field, value, rows in divide(examples, first_fields)}
    keys = {"longer reply": "length_", "word overlap": "overlap_"}
    for part, rows in {"": examples, **(parts if len(parts) > 1 else {})}.items():
        prefix, name = (f"{part}/", f"{part.partition('/')[2]}: ") if part else ("", "")
        for system, found in {MODEL: predictions, **predict_pair_baselines(rows)}.items():
            shown[name + system] = scores = score(rows, found)
            metrics |= {f"{prefix}{keys.get(system, '')}{key}": value for key, value in scores.items()}
    lines = [
        f"{len(examples) // 2:,} pairs, each in both orders; 95% intervals over groups",
        "first, last: position of the hallucinated reply; both: right in both orders; bias: share of answers that name "
        "the first - share that name the second; inv.: neither named",
    ]
    systems: list[Row] = [(bold(name) if name.endswith(MODEL) else name, found) for name, found in shown.items()]
    if dataset == "halludial":
        published = published_table("halludial_comparative")
        names = {name: column for name, (_, column) in COMPARISON_COLUMNS.items()}
        best = sorted(published.rows, key=lambda row: -row["mean"])[:3]
        systems += [None, *((f"{row['system']} *", published_cells(row, names)) for row in best)]
        lines.append(f"* the best of {published.citation}: {published.protocol}")
    if (combined := shown[MODEL].get("combined_accuracy")) is not None:
        lines.append(f"accuracy from the probabilities of both orders, without the bias: {format_percent(combined)}")
    heads = {name: head for name, (head, _) in COMPARISON_COLUMNS.items()}
    question = f"{title}: which of two replies is hallucinated, percent"
    tables = [score_table(question, "judge", heads, systems, bounds=["accuracy"], caption=lines, min_width=20)]
    if num_examples:
        tables.append(new_field_table("answers to judge"))
    for example in choose_examples(examples, predictions, num_examples) if num_examples else ():
        answer = predictions[example.id]
        probability = "-" if answer.score is None else f"{answer.score:.2f}"
        gold = f"reply {1 if example.meta[ORDER] == 'first' else 2} is hallucinated, P(reply 1) {probability}: "
        replies = {"reply 1": example.response, "reply 2": str(example.meta[OTHER])}
        output = {"output": answer.text} if answer.text else {}
        verdict = f"{gold}{judge_outcome(example, answer)}"
        add_fields(tables[-1], {"id": example.id, **context_fields(example), **replies, **output, "verdict": verdict})
    report = Report(
        metrics=metrics,
        tables=tuple(tables),
        notes=(*notes, *scored.notes),
        rescore=rescore,
        shown=tuple(COMPARISON_COLUMNS),
    )
    return add_provenance(report, origin, title=title)


def meta_report(
    examples: Sequence[Example],
    judgements: Mapping[str, str],
    annotators: Mapping[str, Mapping[str, str]],
    *,
    title: str,
    reference: str = "",
    dataset: str = "",
    notes: Sequence[str] = (),
    num_resamples: int = 1000,
    num_examples: int = 5,
) -> Report:
    """Computes the rates of each annotator (`accurate_rate/people`) and agreement by pair (`kappa/people/judge`).

    Args:
        examples: Those with annotated judgements.
        judgements: The judge's replies, by id.
        annotators: Labels by id of each annotator; two are compared on the rows that both have labelled.
        reference: An annotator that is left out of the mean kappa, such as the data's labels.
        dataset: The dataset to show published figures of; empty for none.
    """
    group_of = {example.id: example.group for example in examples}
    metrics: dict[str, Metric] = {}
    all_notes = list(notes)
    for name, labels in annotators.items():
        groups = Groups.of(group_of[id_] for id_ in labels)
        columns = {
            f"accurate_rate/{name}": [label == ACCURATE for label in labels.values()],
            f"unparsed_rate/{name}": [label == UNPARSED for label in labels.values()],
        }
        statistic = mean_statistic(groups, columns)
        metrics |= bootstrap(groups, statistic, kinds=PROPORTION, num_resamples=num_resamples).metrics
    pairs: dict[tuple[str, str], dict[str, Metric]] = {}
    for first, second in combinations(annotators, 2):
        both = [id_ for id_ in annotators[first] if id_ in annotators[second]]
        if not both:
            all_notes.append(f"{first} and {second} have no row in common")
            continue
        one, other = ([annotators[name][id_] for id_ in both] for name in (first, second))
        scored = measure_agreement(one, other, [group_of[id_] for id_ in both], num_resamples=num_resamples)
        pairs[first, second] = scored.metrics
        metrics |= {f"{name}/{first}/{second}": metric for name, metric in scored.metrics.items()}
        if "kappa" not in scored.metrics:
            all_notes.append(f"{first} and {second}: kappa is not defined, both give every row one label")
    kappas = [found["kappa"].value for names, found in pairs.items() if "kappa" in found and reference not in names]
    if len(kappas) > 1:
        metrics["mean_kappa"] = Metric(value=float(np.mean(kappas)))
    rates: list[Row] = []
    for name, labels in annotators.items():
        right, unparsed = metrics[f"accurate_rate/{name}"], metrics[f"unparsed_rate/{name}"]
        rates.append((_display_name(name), {"judgements": len(labels), "right": right, "unparsed": unparsed}))
    lines = ["95% intervals over groups"]
    if dataset == "halludial":
        published, agreed = published_table("halludial_rationales"), published_table("halludial_agreement").rows[0]
        known = [row for row in published.rows if row["human"] is not None]
        rates += [None, *((f"of {row['system']} *", published_cells(row, {"right": "human"})) for row in known)]
        lines.append(f"* {published.citation}: annotators on {agreed['judgements']} judgements that say hallucinated")
    head, counted = f"{title}: judgements found right, percent", ("judgements", "right", "unparsed")
    tables = [score_table(head, "by", counted, rates, bounds=["right"], caption=lines, min_width=20)]
    if pairs:
        lines = [f"mean kappa {np.mean(kappas):.2f}"] if len(kappas) > 1 else []
        lines.append("95% intervals over groups")
        if dataset == "halludial":
            published = published_table("halludial_agreement")
            row = published.rows[0]
            kappa = f"kappa {row['mean']} in the mean ({row['low']:.2f} to {row['high']:.2f})"
            lines.append(f"{published.citation}: {row['annotators']} annotators, {kappa}")
        compared: list[Row] = []
        for names, found in pairs.items():
            cells = {"rows": found["agreement"].n, **found, "kappa": format_metric(found.get("kappa"))}
            compared.append((_display_name(" and ".join(names)), cells))
        heads = {"rows": "rows", "agreement": "agreement, percent", "kappa": "Cohen's kappa"}
        question = f"{title}: agreement on whether a judgement is right"
        tables.append(score_table(question, "pair", heads, compared, caption=lines, min_width=20))
    if num_examples:  # those that annotators disagree on, then those that any finds wrong
        labelled = [(one, {name: of[one.id] for name, of in annotators.items() if one.id in of}) for one in examples]
        labelled = [(one, labels) for one, labels in labelled if labels]
        labelled.sort(key=lambda pair: (-len(set(pair[1].values())), INACCURATE not in pair[1].values()))
        tables.append(new_field_table("judgements to judge"))
        for example, labels in labelled[:num_examples]:
            texts = {"knowledge": example.knowledge, "response": example.response, "judgement": judgements[example.id]}
            shown = ", ".join(f"{_display_name(name)}: {label}" for name, label in labels.items())
            add_fields(tables[-1], {"id": example.id, **texts, "right?": shown})
    return Report(metrics=metrics, tables=tuple(tables), notes=tuple(all_notes))


def _display_name(name: str) -> str:
    return escape_terminal(name.replace("_", " "))


def read_officially(text: str) -> str:
    """Reads a verdict as HaluEval's script does, which searches for Yes and No anywhere in a reply.

    One alone is the verdict, so that None and Nobel mean No; both or neither is a failure.

    >>> [read_officially(text) for text in ("Yes.", "None of it.", "Yes and No", "It is.")]
    ['hallucinated', 'faithful', 'unparsed', 'unparsed']
    """
    yes, no = "Yes" in text, "No" in text
    if yes == no:
        return UNPARSED
    return HALLUCINATED if yes else FAITHFUL


def official_report(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], *, num_resamples: int = 1000
) -> Report | None:
    """Computes HaluEval's accuracy: `official/accuracy`, `official/failed_rate`, `official/task/qa/accuracy`.

    A failure counts as wrong, and so does a request without a reply, whatever the text of its error. None if no
    prediction has a text.
    """
    if not any(one.text or one.failed for one in predictions.values()):
        return None
    tasks: dict[str, Sequence[Example]] = {task: rows for _, task, rows in divide(examples, PARTS)}
    parts = tasks if len(tasks) == 1 else {ALL: examples, **tasks}
    found: dict[str, dict[str, Metric]] = {}
    metrics: dict[str, Metric] = {}
    for part, rows in sorted(parts.items()):
        read = [predictions[example.id] for example in rows]
        gold = np.array([str(example.label) for example in rows])
        official = np.array([UNPARSED if one.failed else read_officially(one.text) for one in read])
        strict = np.array([str(one.label) for one in read])
        columns = {
            "accuracy": official == gold,
            "failed_rate": official == UNPARSED,
            "strict_accuracy": strict == gold,
            "unparsed_rate": strict == UNPARSED,
            "length_accuracy": np.array([str(one.label) for one in length_predictions(rows).values()]) == gold,
        }
        groups = Groups.of(example.group for example in rows)
        statistic = mean_statistic(groups, columns)
        found[part] = bootstrap(groups, statistic, kinds=PROPORTION, num_resamples=num_resamples).metrics
        prefix = "official/" if part == ALL or len(parts) == 1 else f"official/task/{part}/"
        metrics |= {f"{prefix}{name}": metric for name, metric in found[part].items()}
    whole = found[ALL] if ALL in found else next(iter(found.values()))
    accuracy, failed = format_percent(whole["accuracy"]), format_percent(whole["failed_rate"], bounds=False)
    note = f"as HaluEval's script reads replies: accuracy {accuracy}, failed {failed}"
    table = score_table(
        "accuracy as HaluEval's script reads replies, percent",
        "task",
        dict(zip(columns, ("official", "failed", "ours", "unparsed", "length"), strict=True)),
        found.items(),
        bounds=["accuracy"],
        caption=[
            "official: Yes or No anywhere in the reply, both or neither failed and wrong; ours: the same replies read "
            "strictly; length: longer than the median is hallucinated"
        ],
        min_width=14,
    )
    return Report(metrics=metrics, tables=(table,), notes=(note,))


def read_prefix(text: str) -> str:
    """Reads a verdict as HalluDial's script does, by the first letters of a reply.

    >>> [read_prefix(text) for text in ("Yes.", "Nobel won it.", "yes", "It is.")]
    ['hallucinated', 'faithful', 'unparsed', 'unparsed']
    """
    reply = text.strip()
    return HALLUCINATED if reply.startswith("Yes") else FAITHFUL if reply.startswith("No") else UNPARSED


def prefix_report(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], *, num_resamples: int = 1000
) -> Report:
    """Computes the scores of HalluDial's script: `official_macro_f1`, `scenario/induced/official_num_dropped`, ...

    Replies that it cannot read, and requests without a reply, are dropped.
    """
    if not any(one.text or one.failed for one in predictions.values()):
        return Report(metrics={}, notes=("benchmark.official: no prediction has a written verdict to score",))
    parts = {f"{field}/{value}/": rows for field, value, rows in divide(examples, PARTS)}
    metrics: dict[str, Metric] = {}
    shown: list[Row] = []
    for part, rows in {"": examples, **parts}.items():
        ours = {one.id: predictions[one.id] for one in rows}
        read = {name: UNPARSED if one.failed else read_prefix(one.text) for name, one in ours.items()}
        kept = {name: Prediction(id=name, label=label) for name, label in read.items() if label != UNPARSED}
        systems = {"official": kept, "ours": ours}
        for name, found in systems.items():
            outcomes = join_outcomes([one for one in rows if one.id in found], found) if found else None
            scored = classification_metrics(outcomes, num_resamples=num_resamples).metrics if outcomes else {}
            dropped = len(rows) - len(found)
            shown.append((f"{part.split('/')[1] if part else ALL}, {name}", {**scored, "dropped": dropped}))
            if name == "official":
                if outcomes and len({*outcomes.gold, *outcomes.called}) == 1:
                    scored["macro_f1"] = scored["accuracy"]  # scikit-learn's mean is over the classes that occur
                kinds = (*PREFIX_COLUMNS, "f1", "precision", "recall", "faithful_f1")
                metrics |= {f"{part}official_{one}": scored[one] for one in kinds if one in scored}
                metrics[f"{part}official_num_dropped"] = Metric(value=dropped, n=len(rows))
    table = score_table(
        "verdicts as HalluDial's script reads replies, percent",
        "rows",
        {**PREFIX_COLUMNS, "dropped": "dropped"},
        shown,
        bounds=["macro_f1"],
        caption=[
            "official: replies that begin with neither Yes nor No are left out, and None means No, as in HalluDial's "
            "eval.py; ours: they are wrong; P, R: means over both classes"
        ],
        min_width=20,
    )
    counted = f"{metrics['official_num_dropped'].value:,.0f} of {len(examples):,} replies dropped"
    macro = format_percent(metrics.get("official_macro_f1"))
    note = f"as HalluDial's script reads replies: macro-F1 {macro}, {counted}"
    return Report(metrics=metrics, tables=(table,), notes=(note,))
