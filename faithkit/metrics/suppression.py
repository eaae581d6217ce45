"""Suppression: fewer hallucinations by choosing among several responses with a detector (Niu et al. 2024, section 6.3).

`fewest` takes a response with the fewest detected spans; `none` takes one without any, and no response where all have
some. Where several are left, one is drawn at random, as in the paper: rates are exact expectations over that draw, so
neither the order of the file nor a tie ever helps a detector. `fewest_by_score` and `none_by_score` let the lowest
probability decide among these, which the paper does not do.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError
from faithkit.metrics.classification import align_predictions, safe_ratio
from faithkit.metrics.span_metrics import merge_spans
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit.scores.measures import RATES, kinds_of
from faithkit.settings.config_files import FEWEST, FEWEST_BY_SCORE, NONE, NONE_BY_SCORE, RANDOM, STRATEGIES
from faithkit.statistics.bootstrap import FEW_GROUPS, Groups, ScoredMetrics, bootstrap
from faithkit.statistics.spread import Statistic, Values

PERFECT, MARKS_NOTHING = "perfect", "marks_nothing"
RATE, REDUCTION, SAME_SOURCES = "hallucination_rate", "relative_reduction", "relative_reduction_same_sources"


def rerank(candidates: Sequence[Prediction], strategy: str = FEWEST_BY_SCORE) -> int | None:
    """Chooses one of several responses to a source and returns its position; None if no response is clean.

    It takes the first of several equally good ones: shuffle the candidates where their order matters.

    Args:
        candidates: A detector's prediction for each response.
        strategy: One of STRATEGIES.

    Raises:
        UserError: An unknown strategy, or no candidates.
    """
    return min(tied_candidates(candidates, strategy), default=None)


def tied_candidates(candidates: Sequence[Prediction], strategy: str) -> list[int]:
    """Finds the positions that are equally good for a strategy; none if it gives no response."""
    if strategy not in STRATEGIES:
        raise UserError(f"unknown strategy {strategy!r}", hint=f"use one of {', '.join(STRATEGIES)}")
    if not candidates:
        raise UserError("there is no response to choose from", hint="give at least one candidate")
    by_score = strategy in (FEWEST_BY_SCORE, NONE_BY_SCORE)
    # Overlapping spans count as one, and so does a hallucinated or unparsed label without spans.
    counts = [len(merge_spans(one.spans)) or int(one.label != FAITHFUL) for one in candidates]
    scores = [1.0 if one.score is None or not by_score else one.score for one in candidates]
    keys = list(zip(counts, scores, strict=True))
    best = min(keys)
    if strategy in (NONE, NONE_BY_SCORE) and best[0]:
        return []
    return [place for place, key in enumerate(keys) if key == best]


def suppression_metrics(
    examples: Sequence[Example],
    predictions: Mapping[str, Prediction],
    *,
    models: Iterable[str] | None = None,
    strategies: Sequence[str] = STRATEGIES,
    num_resamples: int = 1000,
    seed: int = 0,
) -> ScoredMetrics:
    """Measures how often the chosen response is hallucinated, over the sources with two or more responses.

    `random/hallucination_rate` is the exact expectation of a uniform choice at each source. `<strategy>/...` covers the
    `n` sources where the strategy gives a response, and `<strategy>/relative_reduction` = 1 - its rate / random's, as
    in the paper. `none` leaves out the sources that are hard for every model, so `none/relative_reduction_same_sources`
    compares with random's rate on the sources it keeps. `from/<model>/...` is the rate of each model, `perfect/...`
    that of a detector without mistakes, the lower bound for `fewest`, and `marks_nothing/...` that of `fewest` with a
    detector that finds no span and gives no score, which a strategy must beat. Ratios to a rate of 0 are left out.

    Args:
        models: The models to choose responses from, ignoring case; None: all.

    Raises:
        UserError: Examples without a label, an unknown model or strategy, no source with two responses.
    """
    aligned = align_predictions(examples, predictions)
    if unlabelled := [example.id for example in examples if example.label is None]:
        raise UserError(f"{len(unlabelled)} examples have no gold label", hint="choose a split that is labelled")
    names = [str(example.meta.get("model") or "") for example in examples]
    chosen = {name.lower(): name for name in sorted(set(names))}  # the models to choose from, as the data spells them
    if models is not None:
        wanted = [model.lower() for model in models]
        if missing := [model for model in wanted if model not in chosen]:
            have = ", ".join(chosen.values()) or "none"
            raise UserError(f"no response is by {missing[0]!r}", hint=f"the data has responses by {have}")
        chosen = {model: chosen[model] for model in wanted}
    sources: dict[str, list[int]] = {}
    for row, example in enumerate(examples):
        if names[row].lower() in chosen:
            sources.setdefault(example.group, []).append(row)
    choices = [rows for _, rows in sorted(sources.items()) if len(rows) > 1]
    if not choices:
        raise UserError("no source has two responses to choose from", hint="name more models, or check num_rows")
    gold = np.array([example.label == HALLUCINATED for example in examples], np.float64)
    groups = Groups(np.arange(len(choices)), len(choices))
    picked = {
        s: [[rows[i] for i in tied_candidates([aligned[row] for row in rows], s)] for rows in choices]
        for s in strategies
    }
    silent = Prediction(id="silent", label=FAITHFUL)
    picked[MARKS_NOTHING] = [[rows[i] for i in tied_candidates([silent] * len(rows), FEWEST)] for rows in choices]
    by_model = {
        chosen[name]: [[row for row in rows if names[row].lower() == name] for rows in choices] for name in chosen
    }
    statistic = _statistic(choices, gold, picked, by_model)
    counts = {
        f"{s}/{name}": sum(bool(p) for p in picked[s]) for s in picked for name in (RATE, REDUCTION, SAME_SOURCES)
    }
    counts |= {f"from/{model}/{RATE}": sum(map(len, rows)) for model, rows in by_model.items()}
    of_rates = kinds_of({name: RATES[name] for name in (RATE, REDUCTION, SAME_SOURCES)})
    kinds = {name: of_rates[name.rpartition("/")[2]] for name in statistic(np.ones((1, len(choices))))}
    result = bootstrap(groups, statistic, kinds=kinds, n=counts, num_resamples=num_resamples, seed=seed)
    metrics, before = dict(result.metrics), result.metrics.get(f"{RANDOM}/{RATE}")
    for name, found in result.metrics.items():
        strategy, _, kind = name.rpartition("/")
        rate = result.metrics.get(f"{strategy}/{RATE}")
        is_complete = kind in (REDUCTION, SAME_SOURCES) and found.value >= 1
        # A complete reduction gets the interval of its rate, which is 0: on few sources no resample moves it.
        if is_complete and rate and rate.high and before and before.value:
            metrics[name] = replace(found, low=1 - rate.high / before.value)
    few = {s: counts[f"{s}/{RATE}"] for s in strategies if 0 < counts[f"{s}/{RATE}"] < min(FEW_GROUPS, len(choices))}
    rough = (
        f"{s}: {n} of {len(choices)} sources have such a response: its intervals are rough" for s, n in few.items()
    )
    notes = (*rough, *result.notes)
    if alone := len(sources) - len(choices):
        notes = (f"{alone} of {len(sources)} sources have a single response: left out", *notes)
    return ScoredMetrics(metrics=metrics, notes=notes)


def _statistic(
    choices: Sequence[Sequence[int]],
    gold: NDArray[np.float64],
    picked: Mapping[str, Sequence[Sequence[int]]],
    by_model: Mapping[str, Sequence[Sequence[int]]],
) -> Statistic:
    """Makes a statistic of all rates over weights of sources.

    Args:
        picked: For each strategy and source the rows of which one is drawn; none if it gives no response.
        by_model: For each model and source its rows.
    """

    expected = np.array([gold[list(rows)].mean() for rows in choices])
    floor = np.array([gold[list(rows)].min() for rows in choices])
    strategies: dict[str, tuple[Values, Values]] = {}  # sources with a response, and how likely it is hallucinated
    for strategy, sources in picked.items():
        valid = np.array([bool(rows) for rows in sources], np.float64)
        strategies[strategy] = valid, np.array([gold[list(rows)].mean() if rows else 0.0 for rows in sources])
    models: dict[str, tuple[Values, Values]] = {}  # responses, and hallucinated ones
    for model, sources in by_model.items():
        counts = np.array([len(rows) for rows in sources], np.float64)
        models[model] = counts, np.array([gold[list(rows)].sum() for rows in sources])

    def values(weights: Values) -> dict[str, Values]:
        total = weights.sum(axis=1)
        random = weights @ expected / total
        found = {f"{RANDOM}/{RATE}": random, f"{PERFECT}/{RATE}": weights @ floor / total}
        found |= {f"from/{model}/{RATE}": safe_ratio(weights @ bad, weights @ n) for model, (n, bad) in models.items()}
        for strategy, (valid, bad) in strategies.items():
            rate = safe_ratio(weights @ bad, weights @ valid)
            found[f"{strategy}/{RATE}"] = rate
            found[f"{strategy}/{REDUCTION}"] = 1 - safe_ratio(rate, random)
            if strategy in (NONE, NONE_BY_SCORE):
                there = safe_ratio(weights @ (valid * expected), weights @ valid)
                found[f"{strategy}/{SAME_SOURCES}"] = 1 - safe_ratio(rate, there)
        return found

    return values
