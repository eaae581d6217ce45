"""Shows the rows of shards that people are to label next: those that were drawn, by chance among all."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from construction.estimate.estimate_report import next_row
from construction.estimate.shard_rates import ShardRates
from construction.estimate.shard_verdicts import BATCH, ShardColumns, check_columns, place_name, read_shard
from construction.estimate.verdict_tables import TEXTS, Labels
from faithkit.errors import UserError
from faithkit.statistics.label_sampling import RANDOM, Wave, inclusion_probabilities, write_waves


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """Reads some rows of a shard with their texts.

    Args:
        places: Of the rows, by shard.
    """

    columns: ShardColumns
    places: Mapping[str, Sequence[int]]

    def __call__(self, file: Path, shard: str) -> dict[str, Any]:
        """Gives the rows: id, place, texts, and what the detector says."""
        own = [] if self.columns.id is None else [self.columns.id]
        check_columns(file, {"id": own[0]} if own else {})
        places, rows = np.array(sorted(self.places[shard])), list[dict[str, Any]]()
        known = read_shard(file, self.columns, None, shard)
        start = 0
        with pq.ParquetFile(file) as opened:
            texts = [name for name in TEXTS if name in opened.schema_arrow.names]
            for batch in opened.iter_batches(BATCH, columns=list(dict.fromkeys([*own, *texts, self.columns.label]))):
                here = places[(places >= start) & (places < start + batch.num_rows)]
                for place, row in zip(here, batch.take(pa.array(here - start)).to_pylist(), strict=True):
                    shown = {name: row[name] for name in texts if isinstance(row[name], str) and row[name]}
                    said = {"score": _known(known.scores[place]), "label": _known(known.called[place])}
                    id_ = str(row[own[0]]) if own else place_name(shard, int(place))
                    rows.append({"id": id_, "place": int(place), "shown": shown, **said})
                start += batch.num_rows
        return {"rows": rows}


def places_to_show(rates: ShardRates, count: int) -> dict[str, list[int]]:
    """Gives where the rows stand that were drawn, and those that are labelled already.

    Raises:
        UserError: Fewer are left than are wanted.
    """
    if len(rates.drawn) < count:
        problem = f"{count:,} responses are to be labelled, and {len(rates.drawn):,} are left without a label"
        raise UserError(problem, hint=f"ask for fewer: {len(rates.drawn)} at most")
    places: dict[str, list[int]] = defaultdict(list)
    for _, shard, place in rates.drawn:
        places[shard].append(place)
    for one in rates.found.values():
        places[one.shard].append(one.place)
    return dict(places)


def rows_to_label(
    rates: ShardRates, labels: Labels | None, given: Iterable[tuple[str, Any]]
) -> list[dict[str, object]]:
    """The rows of label_next.csv: those to label, without a label, then those that are labelled already.

    Args:
        given: The name of each shard with its rows.

    Raises:
        UserError: How the labels so far were drawn is known of them alone.
    """
    known = labels or Labels({})
    waves = rates.waves(known)
    if known.values and not waves:
        hint = "labels of draws of our own tell it: their label_next.csv has a column `waves`"
        raise UserError("how the labels were drawn is not known of the other responses", hint=hint)
    every = [*waves, Wave(RANDOM, len(rates.drawn) / (rates.num_rows - len(rates.found)))]
    shown = {(shard, row["place"]): row for shard, one in given for row in one["rows"]}
    order = [one[1:] for one in rates.drawn]  # as chance drew them: the first of them are a sample too
    order += [(one.shard, one.place) for one in rates.found.values()]
    rows = [shown[place] for place in order]
    scores = np.array([rates.mean if row[rates.detector] is None else row[rates.detector] for row in rows])
    chances, text = inclusion_probabilities(every, scores, rates.mean_spread), write_waves(every)
    return [
        next_row(row["id"], known.values.get(row["id"]), float(score), float(chance), text) | row["shown"]
        for row, score, chance in zip(rows, scores, chances, strict=True)
    ]


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
