"""Reports by the protocol of a benchmark: its sets, its turns and conversations, the choice among its responses.

Sets are scored as papers and leaderboards do, with the mean of the sets.

LLM-AggreFact: balanced accuracy. TRUE: AUROC; its mean is without FEVER and VitaminC, which some metrics learned.
PsiloQA: intersection over union of marked characters, 1 where neither side marks any, mean over the rows of a language;
LettuceDetect's data are scored so by set.
FaithBench: balanced accuracy and macro-F1 of all rows. SummEdits: balanced accuracy of each domain.

A turn is judged with what came before it. The label of a conversation follows from those of its turns: it is
hallucinated if any is. A dataset may label whole conversations, too, and its official protocol may read each as one
response, which is another system of labels (DiaHalu's `level=dialogue`); the report names the one that it uses.

`turn/N/macro_f1` has the rows of turn N, `conversation/macro_f1` one row for each conversation with its most suspicious
turn as its score, and `first_turn/right`, `early` and `late` are shares of the hallucinated conversations: the first
turn that is called is the first one labelled hallucinated, comes before it, or comes later or never.

`report_suppression` has RAGTruth's Table 7 with our figures and the paper's (`benchmark=suppression`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.table import Table

from faithkit.baselines.simple_detectors import BaselineData, refit_threshold
from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.classification import (
    CLASSES,
    Outcomes,
    classification_metrics,
    classification_statistic,
    join_outcomes,
    measure_slices,
)
from faithkit.metrics.span_metrics import join_spans
from faithkit.metrics.suppression import (
    MARKS_NOTHING,
    PERFECT,
    RATE,
    REDUCTION,
    SAME_SOURCES,
    suppression_metrics,
)
from faithkit.pages.page_tables import bold, escape_terminal, format_percent
from faithkit.published.figures import published_table, set_figures
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.reports.label_tables import COLUMN_METRICS
from faithkit.reports.report import (
    Cell,
    Provenance,
    Report,
    Row,
    Rows,
    add_provenance,
    published_cells,
    score_table,
    select_rows,
)
from faithkit.reports.write_reports import write_run_results
from faithkit.scores.measures import titles_of
from faithkit.settings.config_files import FEWEST, FEWEST_BY_SCORE, NONE, NONE_BY_SCORE, RANDOM, STRATEGIES
from faithkit.statistics.bootstrap import Groups, ScoredMetrics, bootstrap, mean_statistic
from faithkit.statistics.metric import ACCURACY, PROPORTION, SIMILARITY, Metric
from faithkit.statistics.spread import Statistic, Values

IOU = "iou"
ALL, MEAN = "all rows", "mean"
BEST = "best *"
SHOWN = ("macro_f1", "precision", "recall", "auroc")
PLACES = RIGHT, EARLY, LATE = ("right", "early", "late")
REPEATED = "several responses answer one turn, and no model is named: there are no figures by conversation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a benchmark's rows are scored.

    Args:
        metrics: The first one ranks.
        field: Of `meta`, which names the set of a row; None for one set.
        not_in_mean: Sets that the mean leaves out.
    """

    metrics: tuple[str, ...]
    field: str | None = None
    not_in_mean: tuple[str, ...] = ()


PROTOCOLS = {
    "aggrefact": Protocol(metrics=("balanced_accuracy",), field="set"),
    "true_sets": Protocol(metrics=("auroc",), field="set", not_in_mean=("fever", "vitc")),
    "psiloqa": Protocol(metrics=(IOU,), field="language"),
    "lettucedetect_code": Protocol(metrics=(IOU,), field="set"),
    "lettucedetect_prose": Protocol(metrics=(IOU,), field="set"),
    "faithbench": Protocol(metrics=("balanced_accuracy", "macro_f1")),
    "summedits": Protocol(metrics=("balanced_accuracy",), field="domain"),
}


def set_report(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    title: str,
    dataset: str = "",
    fitting: BaselineData | None = None,
    num_resamples: int = 1000,
) -> Report | None:
    """Computes `set/Wice/balanced_accuracy` and `mean/balanced_accuracy`; None for a dataset without such a protocol.

    Where `fitting` has the model's predictions of other rows, `fitted/...` has its threshold fitted on these.

    Args:
        dataset: The benchmark, to show its published figures; empty for none.
    """
    protocol = PROTOCOLS.get(examples[0].source)
    if protocol is None or (protocol.metrics == (IOU,) and not any(one.spans for one in predictions.values())):
        return None
    sets = [str(one.meta[protocol.field]) if protocol.field else ALL for one in examples]
    scored = _score(examples, predictions, sets, protocol, num_resamples)
    metrics, notes = dict(scored.metrics), list(scored.notes)
    fitted: Mapping[str, Metric] = {}
    has_threshold = "balanced_accuracy" in protocol.metrics
    refitted = (
        refit_threshold(predictions, fitting) if has_threshold and fitting and fitting.model_predictions else None
    )
    if refitted is not None:
        fitted = _score(examples, refitted.predictions, sets, protocol, num_resamples).metrics
        metrics |= {f"fitted/{name}": metric for name, metric in fitted.items()}
        notes.append(f"fitted: threshold of the best macro-F1 on {escape_terminal(refitted.fitted_on)}")
    sizes, first, figures = Counter(sets), protocol.metrics[0], set_figures(dataset)
    averaged = [name for name in sizes if name not in protocol.not_in_mean]
    means = []  # of each published system over the sets, the best first; only of those with all figures
    for row, _ in figures:
        if averaged and all(row.get(name) is not None for name in averaged):
            means.append((float(np.mean([row[name] for name in averaged])), str(row["system"])))
    means.sort(reverse=True)

    def cells(key: str, size: int | str, best: float | None) -> dict[str, Cell]:
        shown = {metric: scored.metrics.get(f"{key}/{metric}") for metric in protocol.metrics}
        return {"rows": size, **shown, "fitted": fitted.get(f"{key}/{first}"), BEST: best}

    by_set: list[Row] = []
    for name, size in sizes.items():
        known = [float(row[name]) for row, _ in figures if row.get(name) is not None]
        by_set.append((escape_terminal(name), cells(f"set/{name}", size, max(known, default=None))))
    if protocol.field:
        by_set += [None, (bold(MEAN), cells(MEAN, "", means[0][0] if means else None))]
    columns = {"rows": "rows", **titles_of(protocol.metrics)}
    columns |= {name: name for name, has_any in {"fitted": fitted, BEST: figures}.items() if has_any}
    lines = ["95% intervals over groups" + "; at the detector's own threshold" * (first == "balanced_accuracy")]
    lines += [f"the mean leaves out {', '.join(protocol.not_in_mean)}"] * bool(protocol.not_in_mean)
    lines += dict.fromkeys(f"* {table.citation}: {table.protocol}" for _, table in figures)
    part = f" by {protocol.field}" if protocol.field else ", as its paper scores it"
    by_sets = score_table(
        f"{title}{part}, percent",
        protocol.field or "part",
        columns,
        by_set,
        bounds=protocol.metrics,
        caption=lines,
        no_wrap=["rows"],
    )
    tables = [by_sets]
    if means and (mean := scored.metrics.get(f"{MEAN}/{first}")) is not None:
        place, head = sum(one > 100 * mean.value for one, _ in means) + 1, titles_of([first])[first]
        rows: list[Row] = [(f"{system} *", {head: one}) for one, system in means[:5]]
        rows.insert(min(place - 1, 5), (bold("model"), {head: mean}))
        lines = [f"place {place} of {len(means) + 1}; the mean of {len(averaged)} sets"]
        tables.append(score_table(f"{title}, the best means", "system", [head], rows, caption=lines))
    by = {protocol.field: {e.id: name for e, name in zip(examples, sets, strict=True)}} if protocol.field else {}
    return Report(metrics=metrics, headline=tuple(tables), notes=tuple(notes), by=by)


def _score(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    sets: Sequence[str],
    protocol: Protocol,
    num_resamples: int,
) -> ScoredMetrics:
    """Scores every set and the mean of the sets on the same resamples of groups."""
    outcomes, names = join_outcomes(examples, predictions), list(dict.fromkeys(sets))
    iou = None  # characters of each row marked by both sides / by any, 1 where there are none [N]
    if IOU in protocol.metrics:
        spans = join_spans(examples, predictions)
        union = spans.marked + spans.found - spans.hits
        iou = np.where(union > 0, spans.hits / np.maximum(union, 1), 1.0)
    found: dict[str, Statistic] = {}
    sizes: dict[str, int] = {}
    for name in names:
        rows = np.array([one == name for one in sets])
        part = outcomes.select(rows, keep_groups=True)
        if "auroc" not in protocol.metrics:
            part.scores[:] = np.nan  # ranking metrics take time
        found[name] = classification_statistic(part) if iou is None else mean_statistic(part.groups, {IOU: iou[rows]})
        sizes |= {f"set/{name}/{metric}": int(rows.sum()) for metric in protocol.metrics}
    once = np.ones((1, outcomes.groups.count))
    defined = {name: [one for one in protocol.metrics if one in statistic(once)] for name, statistic in found.items()}

    def statistic(weights: Values) -> dict[str, Values]:
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN where a resample has no row of a set
            values = {name: one(weights) for name, one in found.items()}
        scored = {f"set/{name}/{metric}": values[name][metric] for name in names for metric in defined[name]}
        for metric in protocol.metrics if protocol.field else ():
            averaged = [one for one in names if one not in protocol.not_in_mean and metric in defined[one]]
            parts = [scored[f"set/{one}/{metric}"] for one in averaged]
            scored |= {f"{MEAN}/{metric}": np.mean(parts, axis=0)} if parts else {}
        return scored

    kind = SIMILARITY if iou is not None else ACCURACY
    result = bootstrap(outcomes.groups, statistic, kinds=kind, n=sizes, num_resamples=num_resamples)
    missing = [name for name in names if len(defined[name]) < len(protocol.metrics)]
    why = f"rows of one label, or without scores: {', '.join(map(escape_terminal, missing))}"
    return ScoredMetrics(metrics=result.metrics, notes=(why,) if missing else ())


def conversation_report(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], *, title: str, num_resamples: int = 1000
) -> Report | None:
    """Computes figures by turn and by conversation; None if the rows are no turns of conversations.

    Rows of one group, scenario and model are a conversation; a row's `turn` is its number.
    """
    turns = [one.meta.get("turn") for one in examples]
    numbers = [turn for turn in turns if isinstance(turn, int)]
    if len(numbers) < len(turns) or len(set(numbers)) < 2:
        return None
    outcomes = join_outcomes(examples, predictions)
    by_turn = measure_slices(outcomes, {"turn": list(map(str, numbers))}, COLUMN_METRICS, num_resamples=num_resamples)
    metrics = {f"turn/{turn}/{name}": one for (_, turn), found in by_turn.items() for name, one in found.items()}
    rows: list[Row] = [
        (str(turn), {"rows": numbers.count(turn), **by_turn["turn", str(turn)]}) for turn in sorted(set(numbers))
    ]
    heads = {"rows": "rows", **titles_of(COLUMN_METRICS[:3])}
    lines = ["each turn with what came before it, by the labels of turns; 95% intervals over groups"]
    options: dict[str, Any] = {"bounds": COLUMN_METRICS[:2], "no_wrap": ["rows"]}
    tables = [score_table(f"{title} by turn, percent", "turn", heads, rows, caption=lines, **options)]
    conversations: dict[tuple[object, ...], list[int]] = {}
    for place, one in enumerate(examples):
        key = (one.group, one.meta.get("scenario"), one.meta.get("model"))
        conversations.setdefault(key, []).append(place)
    if any(len({numbers[place] for place in places}) < len(places) for places in conversations.values()):
        return Report(metrics=metrics, headline=tuple(tables), notes=(REPEATED,))
    groups = [one.group for one in examples]
    ordered = [sorted(places, key=numbers.__getitem__) for places in conversations.values()]
    worst = [CLASSES.index(label) for label in (HALLUCINATED, UNPARSED, FAITHFUL)]
    called: list[int] = []
    firsts: list[tuple[str, str]] = []  # of each hallucinated conversation its group, and where the first call is
    for places in ordered:  # any hallucinated turn decides, and else any without a verdict
        calls, marked = outcomes.called[places], np.flatnonzero(outcomes.gold[places])
        called.append(next(one for one in worst if one in calls))
        if len(marked):
            guessed = np.flatnonzero(calls == worst[0])
            difference = int(guessed[0] - marked[0]) if len(guessed) else 1
            firsts.append((groups[places[0]], RIGHT if not difference else EARLY if difference < 0 else LATE))
    whole = Outcomes(
        gold=np.array([outcomes.gold[places].max() for places in ordered], np.int8),
        called=np.array(called, np.int8),
        scores=np.array([outcomes.scores[places].max() for places in ordered]),  # NaN if a turn has none
        groups=Groups.of(groups[places[0]] for places in ordered),
    )
    every = replace(whole, called=np.ones_like(whole.called), scores=np.full(len(ordered), np.nan))
    found, baseline = (classification_metrics(one, num_resamples=num_resamples).metrics for one in (whole, every))
    metrics |= {f"conversation/{name}": one for name, one in found.items()}
    lines = [f"n = {len(ordered):,}; any hallucinated turn decides: no label of a whole conversation is read"]
    if firsts:
        numbered = Groups.of(group for group, _ in firsts)
        columns = {f"first_turn/{name}": [one == name for _, one in firsts] for name in PLACES}
        statistic = mean_statistic(numbered, columns)
        first = bootstrap(numbered, statistic, kinds=PROPORTION, num_resamples=num_resamples).metrics
        metrics |= first
        shares = ", ".join(f"{100 * first[f'first_turn/{name}'].value:.1f}% {name}" for name in PLACES)
        lines.append(f"first hallucinated turn of {first[f'first_turn/{RIGHT}'].n:,}: {shares}")
    systems: list[Row] = [(bold("model"), dict(found)), ("every conversation", dict(baseline))]
    shown = titles_of(SHOWN)
    tables.append(
        score_table(f"{title} by conversation, percent", "called", shown, systems, bounds=SHOWN[:1], caption=lines)
    )
    return Report(metrics=metrics, headline=tuple(tables))


TITLES = {
    RANDOM: "random choice",
    FEWEST: "fewest detected spans",
    FEWEST_BY_SCORE: "fewest, then lowest score",
    NONE: "no detected span",
    NONE_BY_SCORE: "none, then lowest score",
    MARKS_NOTHING: "a detector that marks nothing",
    PERFECT: "a perfect detector",
}


def report_suppression(
    run: RunFolder,
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    *,
    groups: Mapping[str, Sequence[str] | None],
    strategies: Sequence[str] = STRATEGIES,
    meta: Mapping[str, Any],
    name: str = "suppression",
    num_resamples: int = 1000,
    origin: Provenance | None = None,
) -> dict[str, Metric]:
    """Scores each group of models, writes metrics.json and prints the table; the run's path comes last.

    Metrics are named `test/suppression/<group>/<strategy>/hallucination_rate` and so on
    (faithkit/metrics/suppression.py). A group without any response is left out, with a note.

    Args:
        name: Of the test set, in metrics.
        groups: The models to choose from at each source, by a name of the group; None: all of them.
        origin: Where the predictions are from; None leaves it out.
    """
    by_id = {prediction.id: prediction for prediction in predictions}
    options: dict[str, Any] = {
        "strategies": [strategy for strategy in strategies if strategy != RANDOM],
        "num_resamples": num_resamples,
    }
    have = {str(example.meta.get("model") or "").lower() for example in examples}
    present = {
        name: models for name, models in groups.items() if models is None or have & {model.lower() for model in models}
    }
    if not present:
        raise UserError("no group of models has a response", hint="name models of the data in benchmark.groups")
    scored = {name: suppression_metrics(examples, by_id, models=models, **options) for name, models in present.items()}
    notes = [
        f"{name} is left out: no response is by {' or '.join(models or ())}"
        for name, models in groups.items()
        if name not in present
    ]
    notes += [f"{name}: {note}" for name, one in scored.items() for note in one.notes]
    left: dict[str, dict[str, Metric]] = {}

    def name_metrics(of_groups: Mapping[str, Mapping[str, Metric]]) -> dict[str, Metric]:
        return {f"{name}/{short}": one for name, metrics in of_groups.items() for short, one in metrics.items()}

    def rescore(rows: Rows) -> dict[str, Metric]:
        chosen = select_rows(examples, by_id, rows)
        for group, models in present.items():
            with suppress(UserError):  # too little is left of a group
                left[group] = suppression_metrics(*chosen, models=models, **options).metrics
        return name_metrics(left)

    def build_table(systems: Mapping[str, Any], *, title: str) -> Table:
        return suppression_table(left, title=title)

    found = {name: one.metrics for name, one in scored.items()}
    table = suppression_table(found, title="Choosing among responses by detected hallucinations")
    report = Report(metrics=name_metrics(found), tables=(table,), notes=tuple(notes), rescore=rescore)
    report = add_provenance(report, origin, title="suppression", build_table=build_table)
    return write_run_results(run, {name: [report]}, meta=meta)


def suppression_table(groups: Mapping[str, Mapping[str, Metric]], *, title: str) -> Table:
    """Shows the rates of each group's models, of random choice and of each strategy, with the paper's figures.

    The paper's are in percent, reductions as printed; a choice between other models than the paper's has none.
    """
    published: dict[str, dict[str, Mapping[str, Any]]] = {}  # by group and treatment: a single model, or a strategy
    for row in published_table("ragtruth_suppression").rows:
        published.setdefault(row["group"], {})[row["treatment"]] = row
    rows: list[Row] = []
    captions = [
        "95% intervals over sources; reduction: of random choice's rate at all sources",
        "ties: the expectation of drawing one at random",
    ]
    for name, metrics in groups.items():
        models = [n.split("/", 1)[1].rpartition("/")[0] for n in metrics if n.startswith("from/")]
        wanted = {model.lower() for model in models}
        paper = next((found for found in published.values() if found.keys() - TITLES.keys() == wanted), {})
        rows.append(bold(name))
        treatments = {f"from/{model}": (model, model.lower()) for model in models}
        treatments |= {key: (TITLES[key], key) for key in TITLES}
        for prefix, (shown, key) in treatments.items():
            if (rate := metrics.get(f"{prefix}/{RATE}")) is None:
                continue
            ours = {RATE: rate, REDUCTION: metrics.get(f"{prefix}/{REDUCTION}")}
            rows.append((f"  {escape_terminal(shown)}", {"valid": rate.n, **ours}))
            if figures := paper.get(key):
                theirs = published_cells(figures, {RATE: "rate", REDUCTION: "reduction"})
                rows.append(("    paper", {"valid": figures["num_valid"], **theirs}))
        rows.append(None)
        for row in paper.values():
            printed, found = row["reduction"], 100 * (1 - row["rate"] / paper[RANDOM]["rate"])
            if printed is not None and abs(found - printed) > 0.5:
                misprint = f"the paper prints a reduction of {printed:.1f} where its rates give {found:.1f}"
                captions.append(f"{escape_terminal(name)}: {misprint}")
        if same := metrics.get(f"{NONE}/{SAME_SOURCES}"):
            against = f"{TITLES[NONE]}, against random choice at the same sources"
            captions.append(f"{escape_terminal(name)}: {against}: {format_percent(same)}")
    title, columns = f"{title}, percent", {"valid": "valid", RATE: "hallucinated", REDUCTION: "reduction"}
    heads = list(columns.values())
    return score_table(title, "treatment", columns, rows, caption=captions, no_wrap=heads, show_edge=True)
