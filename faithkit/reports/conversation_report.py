"""The report of a benchmark of turns: figures by turn, and by conversation, which any hallucinated turn makes so.

A turn is judged with what came before it. The label of a conversation follows from those of its turns: it is
hallucinated if any is. A dataset may label whole conversations, too, and its official protocol may read each as one
response, which is another system of labels (DiaHalu's `level=dialogue`); this report names the one that it uses.

`turn/N/macro_f1` has the rows of turn N, `conversation/macro_f1` one row for each conversation with its most suspicious
turn as its score, and `first_turn/right`, `early` and `late` are shares of the hallucinated conversations: the first
turn that is called is the first one labelled hallucinated, comes before it, or comes later or never.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from faithkit.metrics.classification import CLASSES, Outcomes, classification_metrics, join_outcomes, measure_slices
from faithkit.pages.page_tables import bold
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.reports.label_tables import COLUMN_METRICS
from faithkit.reports.report import Report, Row, score_table
from faithkit.scores.measures import titles_of
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import PROPORTION

SHOWN = ("macro_f1", "precision", "recall", "auroc")
PLACES = RIGHT, EARLY, LATE = ("right", "early", "late")
REPEATED = "several responses answer one turn, and no model is named: there are no figures by conversation"


def conversation_report(
    examples: Sequence[Example], predictions: Mapping[str, Prediction], *, title: str, num_resamples: int = 1000
) -> Report | None:
    """Computes figures by turn and by conversation; None for data whose rows are not the turns of conversations.

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
