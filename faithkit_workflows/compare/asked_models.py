"""Asks several detectors about the rows of a user's table, and measures their time.

Each model has a file of verdicts in the run's folder, so that an interrupted comparison asks only for what is missing.
"""

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faithkit.detector import detector_kinds
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import dumps, write_json
from faithkit.files.jsonl import read_jsonl, read_strict_json
from faithkit.inference.reply_cache import CachedEngine
from faithkit.records import Example, Prediction
from faithkit_workflows.audit.asking import Asker
from faithkit_workflows.audit.material import SEPARATOR, with_passages
from faithkit_workflows.audit.target import URL, Target, open_target, passages_of
from faithkit_workflows.detectors.cascade import Cascade
from faithkit_workflows.detectors.known import check_source
from faithkit_workflows.detectors.loading import usage_of
from faithkit_workflows.tables.user_table import SPANS, open_user_table

FROM_CACHE = "from_cache"  # in the costs
VERDICTS, TEXTS = "verdicts", "texts.json"  # the folder of the models' files, and the hash of the rows there
log = logging.getLogger("faithkit")


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
    functions = [name for name in names if ":" in name and name.partition(":")[0] not in kinds]
    targets = {name: _open(name, config) for name in names if name in functions or URL.fullmatch(name)}
    for name in names:
        check_source(name)
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


def _open(name: str, config: Mapping[str, Any]) -> Target:
    return open_target({**config, "target": name, "threshold": None, "server_model": None})


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
        target = target or _open(name, config)
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
