"""Compares detectors on the rows that all of them have judged: accuracy where rows have labels, agreement everywhere.

Any two models are compared as `faithkit report` compares runs (faithkit/scores/board.py). Each model has a file of
verdicts in the run's folder, so that an interrupted comparison asks only for what is missing.
"""

import hashlib
import logging
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from faithkit.baselines.simple_detectors import cross_fit_baselines
from faithkit.detector import detector_kinds
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import dumps, write_json
from faithkit.files.jsonl import read_jsonl, read_strict_json
from faithkit.inference.text_engines import CachedEngine
from faithkit.metrics.classification import evaluate_labels, join_outcomes
from faithkit.metrics.judging import measure_agreement
from faithkit.pages.page_tables import format_p
from faithkit.provenance.row_keys import group_hash
from faithkit.published.known_detectors import known_detectors
from faithkit.records import FAITHFUL, HALLUCINATED, LABELS, Example, Prediction
from faithkit.scores.board import Board, Pair
from faithkit.scores.measures import MACRO_F1, titles_of
from faithkit.statistics.bootstrap import (
    MIN_GROUPS,
    MIN_GROUPS_OF_SHARE,
    MIN_ROWS,
    SMALLEST,
    Decision,
    Difference,
    Test,
    has_enough_rows,
    share,
)
from faithkit.statistics.metric import Metric
from faithkit_workflows.audit.mutations import SEPARATOR, with_passages
from faithkit_workflows.audit.target import URL, Asker, Target, open_target, passages_of
from faithkit_workflows.detectors.cascade import Cascade
from faithkit_workflows.detectors.known import SERVERS, find_source
from faithkit_workflows.detectors.loading import usage_of
from faithkit_workflows.tables.user_table import SPANS, open_user_table

FROM_CACHE = "from_cache"  # in the costs
VERDICTS, TEXTS = "verdicts", "texts.json"  # the folder of the models' files, and the hash of the rows there
log = logging.getLogger("faithkit")
MIN_LABELLED, MIN_OF_CLASS = 20, 2  # rows, for baselines that are fitted on other folds
BETTER, EQUIVALENT = "better than", f"equivalent (within {100 * SMALLEST:.0f} points) to"
UNDECIDED = "not shown to be better than"  # too few rows to decide
BASELINES = ("overlap", "length", "counted")  # keys of those that are fitted
FALSE_ALARMS = "false_alarms"
TITLES = titles_of((MACRO_F1, "accuracy"))
Answers = Mapping[str, Mapping[str, Prediction]]  # by model and row


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedModel:
    """A model's verdicts on rows.

    Args:
        answers: By id; rows without a verdict are missing.
        problems: How many rows have no verdict, by reason.
        costs: Sums over all commands of the run: `loading_seconds` until the first verdict; then `rows`, `seconds` and
            `cpu_seconds`; of a server `requests`, `tokens_read`, `tokens_written` and, with a price, `dollars`; of a
            judge with a cache the replies `from_cache`, which are in none of the others but `rows`.
    """

    name: str
    answers: Mapping[str, Prediction]
    problems: Counter[str]
    costs: Mapping[str, float]


def read_rows(config: Mapping[str, Any]) -> tuple[list[Example], list[str]]:
    """Reads the rows of the table with their passages; also returns notes on rows and labels that are not used."""
    options = {name: config[name] for name in ("on_bad_row", "num_rows", "encoding")}
    table = open_user_table(config["path"], config["columns"], join=SEPARATOR.join, without=[SPANS], **options)
    notes, label = [], table.found.label if table.found else None
    if number := table.num_read - table.num_examples:
        notes.append(f"{number:,} of {table.num_read:,} rows cannot be read, and are left out.")
    rows, unknown = [], 0
    for values, example in table:
        if example is not None:
            rows.append(with_passages(example))
            unknown += example.label is None and bool(label and str(values.get(label) or "").strip())
    if unknown:
        words = "write hallucinated or faithful"
        notes.append(f"{unknown:,} labels in the column {label} have no known meaning, and are not used: {words}.")
    return rows, notes


def ask_models(rows: Sequence[Example], folder: Path, config: Mapping[str, Any]) -> list[AskedModel]:
    """Asks each model about all rows; verdicts that are in the folder already are not asked for again.

    A model that cannot be loaded has no verdicts, and the others are asked.

    Raises:
        UserError: There is no such function, no server answers, the weights of a detector of others are not here, or
            the verdicts in the folder are of other texts: before any model is asked.
    """
    names, kinds = config["models"], detector_kinds()
    config = {**config, "threshold": None, "server_model": None}  # models are opened as the audit opens its target
    functions = [name for name in names if ":" in name and name.partition(":")[0] not in kinds]
    targets = {
        name: open_target({**config, "target": name}) for name in names if name in functions or URL.fullmatch(name)
    }
    for name in names:  # weights of a detector of others that cannot be found
        kind, _, argument = name.partition(":")
        known = known_detectors().get(kind)
        if known and not argument.startswith(SERVERS) and (argument or not getattr(known, "served", "")):
            find_source(known, argument)
    path = folder / VERDICTS / TEXTS
    texts = [[row.id, passages_of(row), [turn.text for turn in row.history], row.response] for row in rows]
    found = {"texts": hashlib.sha256(dumps(texts).encode()).hexdigest()}  # labels may be new
    if path.exists() and read_strict_json(path, hint="delete it") != found:
        hint = "give the earlier table, in which labels may be added, or compare in a new run"
        raise UserError("the texts of the table have changed since this run began", place=config["path"], hint=hint)
    write_json(path, found)
    return [
        _ask(name, targets.get(name), rows, folder / VERDICTS / f"{place}.jsonl", config)
        for place, name in enumerate(names, start=1)
    ]


def _ask(
    name: str, target: Target | None, rows: Sequence[Example], path: Path, config: Mapping[str, Any]
) -> AskedModel:
    cost_path = path.with_suffix(".costs.json")
    costs: dict[str, float] = read_strict_json(cost_path, hint="delete it") if cost_path.exists() else {}
    known = {row["id"]: Prediction.from_dict(row) for row in read_jsonl(path)} if path.exists() else {}
    if all(row.id in known for row in rows):
        return AskedModel(name=name, answers=known, problems=Counter(), costs=costs)
    began = time.perf_counter()
    try:
        target = target or open_target({**config, "target": name})
    except UserError as error:
        log.warning("%s is left out: %s", name, error)
        reason = f"not loaded: {shorten(error.problem, 200)[1:-1]}"
        return AskedModel(name=name, answers=known, problems=Counter({reason: len(rows) - len(known)}), costs=costs)
    asker = Asker(target, path, **{key: config[key] for key in ("row_seconds", "max_seconds", "batch_size")})
    try:
        answers = asker.ask(rows[:1], f"{name}: first row")
        num_first, seconds, cpu = len(asker.seconds), time.perf_counter(), time.process_time()
        costs["loading_seconds"] = seconds - began
        try:
            answers |= asker.ask(rows[1:], name)
        finally:
            spent: dict[str, float] = {
                "seconds": time.perf_counter() - seconds,
                "cpu_seconds": time.process_time() - cpu,
            }
            spent["rows"] = len(asker.seconds) - num_first
            # What the server of a judge has counted, and how many replies its cache gave.
            detector = getattr(target, "detector", None)
            judge: Any = detector.expensive if isinstance(detector, Cascade) else detector
            engine = getattr(judge, "engine", None)
            if isinstance(engine, CachedEngine):
                spent[FROM_CACHE] = engine.known
            if engine is not None and (usage := usage_of(engine)) is not None:
                spent |= {"requests": usage.answered + usage.failed}
                spent |= {"tokens_read": usage.prompt_tokens, "tokens_written": usage.new_tokens}
                spent |= {} if usage.cost is None else {"dollars": usage.cost}
            for key, value in spent.items():
                costs[key] = costs.get(key, 0) + value
            write_json(cost_path, costs)
    finally:
        asker.close()
    return AskedModel(name=name, answers=answers, problems=asker.problems, costs=costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Figures on the common rows that people have labelled.

    Args:
        metric: What decides: macro-F1, or accuracy where all labels are the same.
        models: The metrics of each model, the best first.
        baselines: Those of the simple baselines, fitted on other folds; none of few rows.
        pairs: Every two models.
        lines: The conclusion, and how the best model compares with the strongest baseline.
        notes: What makes figures uncertain.
    """

    num_rows: int
    num_hallucinated: int
    metric: str
    models: Mapping[str, Mapping[str, Metric]]
    baselines: Mapping[str, Mapping[str, Metric]]
    pairs: Sequence[Pair]
    lines: Sequence[str]
    notes: Sequence[str]


@dataclass(slots=True, kw_only=True)
class ModelComparison:
    """A comparison of models.

    Args:
        asked: All models.
        names: Those that are compared.
        rows: All rows, with label where there is one.
        common: The rows that all compared models have judged.
        shares: By model the share of common rows that it calls hallucinated.
        agreements: `agreement` and `kappa` of every two models; no kappa where both give one label only.
        accuracy: None without labels.
        to_label: Rows without a label, the largest disagreement first.
        notes: What is not compared.
    """

    asked: Sequence[AskedModel]
    names: Sequence[str]
    rows: Sequence[Example]
    common: Sequence[Example]
    answers: Answers
    shares: Mapping[str, Metric]
    agreements: Mapping[tuple[str, str], Mapping[str, Metric]]
    accuracy: Accuracy | None
    to_label: Sequence[Example]
    notes: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """The conclusion in words, the decisive sentence first."""
        if self.accuracy is not None:
            return list(self.accuracy.lines)
        both, least = min(self.agreements.items(), key=lambda item: item[1]["agreement"].value)
        how = "agree" if len(self.names) == 2 else "agree least:"
        kappa = f" (kappa {least['kappa'].value:.2f})" if "kappa" in least else ""
        rows = f"on {100 * least['agreement'].value:.1f}% of {len(self.common):,} rows{kappa}"
        return [f"{' and '.join(both)} {how} {rows}; without labels nothing shows which is right."]


def compare_models(rows: Sequence[Example], asked: Sequence[AskedModel], *, num_to_label: int) -> ModelComparison:
    """Compares the models that have judged at least half of the rows.

    Raises:
        UserError: Fewer than two have.
    """
    judged = {one.name: [row for row in rows if row.id in one.answers] for one in asked}
    answers = {one.name: one.answers for one in asked if judged[one.name] and len(judged[one.name]) >= 0.5 * len(rows)}
    notes = []
    for one in asked:
        if missing := len(rows) - len(judged[one.name]):
            reasons = "; ".join(f"{reason} ({count:,})" for reason, count in one.problems.most_common(3))
            end = "" if one.name in answers else " It is left out."
            notes.append(f"{one.name} has no verdict on {missing:,} of {len(rows):,} rows: {reasons}.{end}")
    notes += [
        f"{one.name}: {number:,} replies came from the cache; its time and cost are those of the others only."
        for one in asked
        if (number := int(one.costs.get(FROM_CACHE, 0)))
    ]
    common = [row for row in rows if all(row.id in of_model for of_model in answers.values())]
    if len(answers) < 2 or not common:
        hint = "correct the model, then compare again; resume=RUN asks again for the rows without a verdict"
        raise UserError(f"fewer than two models have judged the rows. {' '.join(notes)}", hint=hint)
    if len(common) < len(rows):
        notes.append(f"Compared are the {len(common):,} of {len(rows):,} rows that all models have judged.")
    labelled = [row for row in common if row.label is not None]
    if 0 < len(labelled) < len(common):
        notes.append(f"{len(labelled):,} of {len(common):,} rows have a label: accuracy is measured on these.")
    groups = [row.group for row in common]
    shares = {name: share([of[row.id].label == HALLUCINATED for row in common], groups) for name, of in answers.items()}
    # To label first: the rows on which labels divide most evenly, and at random where this is equal. Not by
    # probability: rows on which a model is surest are those on which it is right most often.
    minority = {}
    for row in common:
        called = sum(of_model[row.id].label == HALLUCINATED for of_model in answers.values())
        minority[row.id] = min(called, len(answers) - called)
    differing = [row for row in common if row.label is None and minority[row.id]]
    # Where groups are few, rows count by themselves.
    agreed_by = groups if len(set(groups)) >= MIN_GROUPS_OF_SHARE else [row.id for row in common]
    labels = {name: [str(of_model[row.id].label) for row in common] for name, of_model in answers.items()}
    return ModelComparison(
        asked=asked,
        names=list(answers),
        rows=rows,
        common=common,
        answers=answers,
        shares={name: metric for name, metric in shares.items() if metric is not None},
        agreements={
            (first, second): measure_agreement(labels[first], labels[second], agreed_by).metrics
            for first, second in combinations(answers, 2)
        },
        accuracy=measure_accuracy(labelled, answers) if labelled else None,
        to_label=sorted(differing, key=lambda row: (-minority[row.id], group_hash(row.id)))[:num_to_label],
        notes=notes,
    )


def measure_accuracy(rows: Sequence[Example], answers: Answers) -> Accuracy:
    """Measures models and simple baselines on labelled rows, and tests the differences of models."""
    board = Board("own rows")
    for name, of_model in answers.items():
        board.add(name, evaluate_labels(join_outcomes(rows, {row.id: of_model[row.id] for row in rows})))
    metrics = {name: {**board.metrics(name), **_false_alarms(rows, answers[name])} for name in answers}
    positives = sum(row.label == HALLUCINATED for row in rows)
    has_both = 0 < positives < len(rows)
    metric = MACRO_F1 if has_both else "accuracy"
    ranked, notes = sorted(answers, key=lambda name: -metrics[name][metric].value), board.notes()
    pairs = board.pairs(ranked)
    lines = [describe_best(ranked[0], [pair for pair in pairs if pair.first == ranked[0]], metric)]
    if not has_both:
        only, other = (LABELS[1], LABELS[0]) if positives else LABELS
        lines.append(f"All {len(rows):,} labels are {only}: label {other} rows too, on which a model may be worse.")
    baselines: dict[str, Mapping[str, Metric]] = {}
    if len(rows) >= MIN_LABELLED and MIN_OF_CLASS <= positives <= len(rows) - MIN_OF_CLASS:
        fitted, names = cross_fit_baselines(rows)
        for key in (key for key in fitted if key in BASELINES):
            board.add(key, evaluate_labels(join_outcomes(rows, fitted[key])), title=names[key], is_baseline=True)
            baselines[names[key]] = {**board.metrics(key), **_false_alarms(rows, fitted[key])}
        if conclusion := board.conclude(ranked[0], {MACRO_F1: TITLES[MACRO_F1]}):
            lines.append(f"{conclusion.text[:1].upper()}{conclusion.text[1:]}.")
    return Accuracy(
        num_rows=len(rows),
        num_hallucinated=positives,
        metric=metric,
        models={name: metrics[name] for name in ranked},
        baselines=baselines,
        pairs=pairs,
        lines=lines,
        notes=notes,
    )


def _false_alarms(rows: Sequence[Example], answers: Mapping[str, Prediction]) -> dict[str, Metric]:
    faithful = [row for row in rows if row.label == FAITHFUL]
    found = share([answers[row.id].label == HALLUCINATED for row in faithful], [row.group for row in faithful])
    return {} if found is None else {FALSE_ALARMS: found}


def describe_best(best: str, pairs: Sequence[Pair], metric: str) -> str:
    """States which models the best one is better than, and how many more labels would show a difference from others.

    These are the rows that would probably show the smallest of the differences, or one of five points. The interval
    shrinks with the root of the number of rows; what no group shows needs 3 / `SMALLEST` groups.

    Args:
        pairs: The best model minus each other one.
    """
    tests = {
        pair.second: Test(metric=TITLES[metric], other=pair.second, difference=pair.differences[metric])
        for pair in pairs
    }
    p_values = {pair.second: pair.corrected[metric] for pair in pairs}
    rows, groups = pairs[0].num_rows, pairs[0].num_groups
    size = f"{rows:,} labelled rows{f' in {groups:,} groups' if groups != rows else ''}"
    if not all(has_enough_rows(test.difference) for test in tests.values()):
        needed = f"at least {MIN_ROWS} in {MIN_GROUPS} groups are needed"
        return f"Too few rows to tell which model is better: {size}; {needed}."
    parts: dict[str, list[str]] = {BETTER: [], EQUIVALENT: [], UNDECIDED: []}
    undecided: list[Difference] = []
    for name, test in tests.items():
        is_better = test.verdict is Decision.BETTER and p_values[name] < 0.05
        relation = BETTER if is_better else EQUIVALENT if test.verdict is Decision.LEVEL else UNDECIDED
        parts[relation].append(f"{name} ({test.text}, Holm's p {format_p(p_values[name])})")
        if relation == UNDECIDED:
            undecided.append(test.difference)
    described = ", and ".join(f"{how} {' and '.join(names)}" for how, names in parts.items() if names)
    missing = ""
    if undecided:
        found = min(undecided, key=lambda one: abs(one.value))
        wanted = max(abs(found.value), SMALLEST)
        power = (1.96 + 0.84) / 1.96  # of a half interval: a difference that large is found in 80% of samples
        by_width, by_groups = (power * (found.high - found.low) / 2 / wanted) ** 2, 3 / SMALLEST / found.num_groups
        more = math.ceil(round(found.n * (max(by_width, by_groups) - 1), 6))
        unit = 10 ** max(0, len(str(more)) - 2)  # rounded up to two digits
        points = f"a difference of {100 * wanted:.0f} points"
        missing = f": label about {math.ceil(more / unit) * unit:,} more rows to see {points}"
        if more <= 0:
            missing = f": {points} would probably be seen on these rows"
    return f"{best} is {described}, on {size}{missing}."
