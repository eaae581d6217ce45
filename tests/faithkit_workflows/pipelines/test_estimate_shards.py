"""Rates over folders of scored shards equal those of one file with all rows; errors name the shard."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from construction import verdict_tables
from construction.labels import read_labels
from construction.verdict_tables import read_file, read_shards
from faithkit.errors import UserError
from faithkit_workflows import construct
from faithkit_workflows.pipelines.estimate import Estimated, estimate
from tests.data_modules.official_rows import write
from tests.running import compose, plain_config

NUM_ROWS = 1500
COLUMNS = {"id": "id", "label": "label", "score": None, "group": "talk"}


def sample(with_gaps: bool = False) -> list[dict[str, Any]]:
    """Rows as `faithkit score` leaves them: three to a talk, in which a detector errs more often in German."""
    draw = np.random.default_rng(5)
    rows = []
    for number in range(NUM_ROWS):
        language = ("en", "de", "fr")[number // 3 % 3]
        score = float(draw.beta(2, 3))
        gap = with_gaps and number % 17 == 0
        label = None if gap else "hallucinated" if score > 0.5 else "faithful"
        columns = {"id": f"r{number}", "talk": number // 3, "language": language}
        rows.append({**columns, "label": label, "probability": None if gap else score, "spans": []})
    return rows


def truth(row: dict[str, Any]) -> bool:
    number = int(row["id"][1:])
    return (row["probability"] or 0.4) + 0.4 * np.sin(number) > (0.4 if row["language"] == "de" else 0.55)


def write_shards(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """Writes shards of different sizes; one talk lies in two of them."""
    folder.mkdir(parents=True)
    texts = [(name, pa.string()) for name in ("id", "language", "label")]
    others = [("talk", pa.int64()), ("probability", pa.float64()), ("spans", pa.list_(pa.string()))]
    schema = pa.schema([*texts, *others])
    for number, (start, end) in enumerate(pairwise([0, 301, 306, 1200, NUM_ROWS])):
        pq.write_table(pa.Table.from_pylist(rows[start:end], schema=schema), folder / f"part-{number}.parquet")
    return folder


def labelled(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Writes the labels of every tenth row."""
    return write(path, [{"id": row["id"], "label": int(truth(row))} for row in rows[::10]])


def block(predictions: Path, labels: Path | None = None, **changes: Any) -> dict[str, Any]:
    given = [f"pipeline.predictions={predictions}", f"pipeline.labels={labels or 'null'}", "pipeline.num_resamples=50"]
    found = plain_config("construct", "pipeline=estimate", *given)["pipeline"]
    return {**found, **changes, "columns": {**COLUMNS, **changes.get("columns", {})}}


def estimated(given: dict[str, Any]) -> Estimated:
    labels = read_labels(given["labels"], given["label_columns"]) if given["labels"] else None
    arguments = (given["predictions"], given["columns"], given["by"], labels.values if labels else ())
    table = (read_shards if Path(given["predictions"]).is_dir() else read_file)(*arguments)
    return estimate(table, labels, given, 0)


def check_equal(tmp_path: Path, rows: list[dict[str, Any]], given: dict[str, Any]) -> None:
    """Compares the rates of shards with those of a single file with all rows."""
    file = write(tmp_path / "all.jsonl", rows)
    found, wanted = estimated(given), estimated({**given, "predictions": str(file)})
    for mine, theirs in zip(found.parts, wanted.parts, strict=True):
        assert all(getattr(mine, name) == getattr(theirs, name) for name in ("name", "num_responses", "num_labels"))
        assert mine.metrics.keys() == theirs.metrics.keys() - {"rate_corrected"}
        for name, one in mine.metrics.items():
            other = theirs.metrics[name]
            assert (one.value, one.low, one.high, one.n) == pytest.approx((other.value, other.low, other.high, other.n))


SCORED = {"columns": {"score": "probability"}}
CHANGES = [{}, {"columns": {"group": None}}, SCORED, {"with_gaps": True}, {"with_gaps": True, **SCORED, "batch": 64}]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_the_rates_are_those_of_one_file(changes, tmp_path, monkeypatch) -> None:
    changes = dict(changes)
    rows = sample(changes.pop("with_gaps", False))
    monkeypatch.setattr(verdict_tables, "BATCH", changes.pop("batch", 10_000))
    given = block(write_shards(tmp_path / "data", rows), labelled(tmp_path / "l.csv", rows), by="language", **changes)
    check_equal(tmp_path, rows, given)


def test_the_rarest_values_count_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = sample()
    for number, row in enumerate(rows):
        row["language"] = f"l{number // 3 % 70:02}" if number < 1200 else "l00"
    data, labels = write_shards(tmp_path / "data", rows), labelled(tmp_path / "l.csv", rows)
    check_equal(tmp_path, rows, block(data, labels, by="language"))
    rates = estimated(block(data, labels, by="language")).parts
    assert len(rates) == 52 and rates[-1].name == "the other 20 values"
    for name in ("num_responses", "num_labels"):
        counts = [getattr(part, name) for part in rates]
        assert counts[0] == sum(counts[1:]) and counts[-1] > 0
    called = [part.metrics["rate_detector"].value * part.num_responses for part in rates]
    assert sum(called[1:]) == pytest.approx(called[0]) == sum(row["label"] == "hallucinated" for row in rows)


def test_the_command_shows_shares_without_labels_and_rates_with_them(tmp_path, capsys) -> None:
    rows = sample()
    data = write_shards(tmp_path / "scored", rows)
    given = ["pipeline=estimate", f"pipeline.predictions={data}", "pipeline.by=language", "pipeline.num_resamples=50"]
    construct.main(compose("construct", *given, f"run_dir={tmp_path / 'shares'}"))
    shown = capsys.readouterr().out
    for name, chosen in {"all": rows, "de": [row for row in rows if row["language"] == "de"]}.items():
        share = 100 * sum(row["label"] == "hallucinated" for row in chosen) / len(chosen)
        line = next(line for line in shown.splitlines() if line.startswith(f"| {name} "))
        assert f" {len(chosen):,} " in line and f" {share:.1f} [" in line
    labels = labelled(tmp_path / "l.csv", [*rows, {**rows[0], "id": "r99990"}])
    more = [f"pipeline.labels={labels}", "pipeline.width=0.1", f"run_dir={tmp_path / 'rates'}"]
    construct.main(compose("construct", *given, *more))
    metrics = json.loads((tmp_path / "rates" / "metrics.json").read_text())["metrics"]
    assert metrics["test/scored/by/de/rate"]["value"] > metrics["test/scored/by/en/rate"]["value"]
    assert "an interval 10 points wide takes about" in capsys.readouterr().out
    assert "labels of ids that have no verdict: 1" in (tmp_path / "rates" / "construct.log").read_text()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": {"group": "dialogue"}}, "there is no column 'dialogue'\n  at: part-0.parquet"),
        ({"by": "spans"}, "part-0.parquet"),
        ({"columns": {"label": "language"}}, "column 'language' has 'en'"),
        ({"columns": {"score": "talk"}}, "column 'talk' has 2.0"),
        ({"columns": {"id": "language"}}, "id 'en' is given twice"),
        ({"columns": {"id": "name"}}, "there is no column 'name'"),
    ],
    ids=str,
)
def test_columns_that_do_not_fit_are_refused_with_their_shard(change, words, tmp_path) -> None:
    rows = sample()
    labels = write(tmp_path / "l.csv", [{"id": "en", "label": 1}])
    with pytest.raises(UserError) as caught:
        estimated(block(write_shards(tmp_path / "data", rows), labels, **change))
    assert words in str(caught.value)


def test_folders_that_are_no_sound_shards_are_reported(tmp_path: Path) -> None:
    rows = sample()
    rows[-1]["id"] = "r0"
    given = block(write_shards(tmp_path / "twice", rows), labelled(tmp_path / "l.csv", rows))
    with pytest.raises(UserError, match=r"id 'r0' is given twice\n  at: part-0.parquet and part-3.parquet"):
        estimated(given)
    data = write_shards(tmp_path / "changed", sample())
    table = read_shards(str(data), COLUMNS, None, ())
    pq.write_table(pq.read_table(data / "part-2.parquet").slice(2), data / "part-2.parquet")
    with pytest.raises(UserError, match=r"was written while it was read\n  at: part-2.parquet"):
        table.show([0, 400])
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("id,label\n1,faithful\n")
    with pytest.raises(UserError, match="no shards of Parquet"):
        estimated(block(tmp_path / "data"))
    (tmp_path / "data" / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"no file of Parquet\n  at: b.parquet"):
        estimated(block(tmp_path / "data"))


def test_rows_without_ids_are_named_by_their_place(tmp_path: Path) -> None:
    rows = sample()
    data = write_shards(tmp_path / "data" / "day=1", rows).parent
    drawn = estimated(block(data, label_next=50, rule="random", columns={"id": None})).next_rows
    assert all(str(row["id"]).startswith("day=1/part-") for row in drawn)
    starts = {f"day=1/part-{number}": start for number, start in enumerate((0, 301, 306, 1200))}
    places = [starts[name] + int(place) for name, _, place in (str(row["id"]).rpartition(":") for row in drawn)]
    assert [row["score"] for row in drawn] == [round(rows[place]["probability"], 6) for place in places]
    filled = [{**row, "label": int(truth(rows[place]))} for row, place in zip(drawn, places, strict=True)]
    by_place = estimated(block(data, write(tmp_path / "a.csv", filled), columns={"id": None}))
    named = [{**row, "id": rows[place]["id"]} for row, place in zip(filled, places, strict=True)]
    assert by_place.parts == estimated(block(data, write(tmp_path / "b.csv", named))).parts
    strange = [{**row, "id": f"day=2/part-0:{place}"} for row, place in zip(filled, places, strict=True)]
    with pytest.raises(UserError, match="none of 50 labels is of these responses"):
        estimated(block(data, write(tmp_path / "c.csv", strange), columns={"id": None}))
