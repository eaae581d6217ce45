"""Rates over folders of scored shards equal those of all rows in memory, in any order; errors name the shard."""

import csv
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from construction.estimate import shard_verdicts
from construction.estimate.estimate_report import PartRates
from construction.estimate.labels import read_labels
from construction.estimate.verdict_tables import read_verdicts
from faithkit.errors import UserError
from faithkit.settings.check import check_settings
from faithkit.statistics.label_sampling import inclusion_probabilities, read_waves
from faithkit_workflows import construct
from faithkit_workflows.pipelines.estimate import Estimated, estimate, estimate_shards, run_in_process
from faithkit_workflows.settings.construction import ConstructSettings
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
    ends = [0, 301, 306, 1200, NUM_ROWS]
    folder.mkdir(parents=True)
    texts = [(name, pa.string()) for name in ("id", "language", "label")]
    others = [("talk", pa.int64()), ("probability", pa.float64()), ("spans", pa.list_(pa.string()))]
    schema = pa.schema([*texts, *others])
    for number, (start, end) in enumerate(pairwise(ends)):
        pq.write_table(pa.Table.from_pylist(rows[start:end], schema=schema), folder / f"part-{number}.parquet")
    return folder


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def labelled(path: Path, rows: list[dict[str, Any]], **others: Any) -> Path:
    """Writes the labels of every tenth row."""
    made = [{"id": row["id"], "label": int(truth(row)), **others} for row in rows[::10]]
    return write_csv(path, made)


def block(predictions: Path, labels: Path | None = None, **changes: Any) -> dict[str, Any]:
    given = [f"pipeline.predictions={predictions}", f"pipeline.labels={labels or 'null'}", "pipeline.num_resamples=50"]
    found = plain_config("construct", "pipeline=estimate", *given)["pipeline"]
    return {**found, "columns": {**COLUMNS, **changes.pop("columns", {})}, **changes}


def backwards(worker: type, argument: Any, rows: Any, options: Any) -> Iterator[Any]:
    for row in reversed(rows):
        yield from run_in_process(worker, argument, [row], options)


def expected(tmp_path: Path, rows: list[dict[str, Any]], given: dict[str, Any]) -> Estimated:
    """Estimates from a single file with all rows."""
    file = tmp_path / "all.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    labels = read_labels(given["labels"], given["label_columns"]) if given["labels"] else None
    table = read_verdicts(str(file), given["columns"], given["by"], labels.values if labels else ())
    return estimate(table, labels, {**given, "label_next": None}, 0)


def check_equal(found: Estimated, wanted: Estimated) -> None:
    def described(part: PartRates) -> Any:
        return part.name, part.num_responses, part.num_labels

    assert list(map(described, found.parts)) == list(map(described, wanted.parts))
    for mine, theirs in zip(found.parts, wanted.parts, strict=True):
        assert mine.metrics.keys() == theirs.metrics.keys() - {"rate_corrected"}
        assert mine.metrics["rate_detector"] == theirs.metrics["rate_detector"]
        for name, one in mine.metrics.items():
            other = theirs.metrics[name]
            assert (one.value, one.low, one.high, one.n) == pytest.approx(
                (other.value, other.low, other.high, other.n), rel=1e-9
            )
        if theirs.estimate is not None and mine.estimate is not None:
            assert mine.estimate.power == pytest.approx(theirs.estimate.power, rel=1e-9)
            assert mine.estimate.num_groups == theirs.estimate.num_groups
            assert mine.estimate.is_exact == theirs.estimate.is_exact


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"power": 1.0},
        {"power": 0.0},
        {"columns": {"group": None}},
        {"columns": {"score": "probability"}},
        {"with_gaps": True},
        {"with_gaps": True, "columns": {"score": "probability"}},
    ],
    ids=str,
)
def test_the_rates_are_those_of_all_rows_in_memory(changes: dict[str, Any], tmp_path: Path) -> None:
    rows = sample(changes.pop("with_gaps", False))
    given = block(write_shards(tmp_path / "data", rows), labelled(tmp_path / "l.csv", rows), by="language", **changes)
    check_equal(estimate_shards(given, None), expected(tmp_path, rows, given))


@pytest.mark.parametrize(
    "others",
    [{"waves": "uncertainty 0.1"}, {"waves": "random 0.05; uncertainty 0.05"}, {"inclusion_probability": 0.3}],
    ids=str,
)
def test_labels_that_were_not_drawn_alike_are_weighed_as_in_memory(others: dict[str, Any], tmp_path: Path) -> None:
    rows = sample()
    labels = drawn(tmp_path / "l.csv", rows, **others)
    given = block(write_shards(tmp_path / "data", rows), labels, by="language")
    check_equal(estimate_shards(given, None), expected(tmp_path, rows, given))


def drawn(path: Path, rows: list[dict[str, Any]], **others: Any) -> Path:
    """Writes the labels of every tenth row, with the chances that its waves give it."""
    if "waves" not in others:
        return labelled(path, rows, **others)
    chances = inclusion_probabilities(read_waves(others["waves"]), np.array([row["probability"] for row in rows]))
    made = [{"id": row["id"], "label": int(truth(row)), **others} for row in rows[::10]]
    pairs = zip(made, chances[::10], strict=True)
    return write_csv(path, [{**row, "inclusion_probability": float(chance)} for row, chance in pairs])


def test_the_rarest_values_count_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = sample()
    for number, row in enumerate(rows):
        row["language"] = f"l{number // 3 % 70:02}" if number < 1200 else "l00"
    data, labels = write_shards(tmp_path / "data", rows), labelled(tmp_path / "l.csv", rows)
    given = block(data, labels, by="language")
    wanted, found = expected(tmp_path, rows, given), estimate_shards(given, None)
    parts, rates = wanted.parts, found.parts
    for mine in (parts, rates):
        assert len(mine) == 52 and mine[-1].name == "the other 20 values"
        for name in ("num_responses", "num_labels"):
            counts = [getattr(part, name) for part in mine]
            assert counts[0] == sum(counts[1:]) and counts[-1] > 0
        called = [part.metrics["rate_detector"].value * part.num_responses for part in mine]
        assert sum(called[1:]) == pytest.approx(called[0]) == sum(row["label"] == "hallucinated" for row in rows)
    check_equal(found, wanted)
    construct.main(
        compose(
            "construct",
            *("pipeline=estimate", f"pipeline.predictions={data}", f"pipeline.labels={labels}"),
            *("pipeline.by=language", "pipeline.num_resamples=50", f"run_dir={tmp_path / 'run'}"),
        )
    )
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if line.strip(" |").startswith("the other 20"))
    assert f" {rates[-1].num_labels} " in line
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]
    assert metrics["test/data/by/the other 20 values/rate_detector"]["n"] == rates[-1].num_responses


def test_small_batches_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sample(with_gaps=True)
    given = block(write_shards(tmp_path / "data", rows), labelled(tmp_path / "l.csv", rows), by="language")
    monkeypatch.setattr(shard_verdicts, "BATCH", 64)
    check_equal(estimate_shards(given, None), expected(tmp_path, rows, given))


def test_the_order_of_shards_changes_no_digit(tmp_path: Path) -> None:
    rows = sample(with_gaps=True)
    given = block(write_shards(tmp_path / "data", rows), labelled(tmp_path / "l.csv", rows), by="language")
    forwards, other = (estimate_shards(given, None, run) for run in (run_in_process, backwards))
    assert forwards.parts == other.parts


def test_the_command_shows_shares_without_labels_and_rates_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert "labels of ids that have no verdict: 1" in (tmp_path / "rates" / "train.log").read_text()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": {"group": "dialogue"}}, "there is no column 'dialogue'\n  at: part-0.parquet"),
        ({"by": "spans"}, "part-0.parquet"),
        ({"columns": {"label": "language"}}, "column 'language' has 'en'"),
        ({"columns": {"score": "talk"}}, "column 'talk' has 2.0"),
        ({"columns": {"id": "language"}}, "none of 150 labels is of these responses"),
        ({"columns": {"id": "name"}}, "there is no column 'name'"),
    ],
    ids=str,
)
def test_columns_that_do_not_fit_are_refused_with_their_shard(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    rows = sample()
    given = block(write_shards(tmp_path / "data", rows), labelled(tmp_path / "l.csv", rows), **change)
    with pytest.raises(UserError) as caught:
        estimate_shards(given, None)
    assert words in str(caught.value)


def test_an_id_that_occurs_in_two_shards_is_refused(tmp_path: Path) -> None:
    rows = sample()
    rows[-1]["id"] = "r0"
    given = block(write_shards(tmp_path / "data", rows), labelled(tmp_path / "l.csv", rows))
    with pytest.raises(UserError, match=r"id 'r0' is given twice\n  at: part-0.parquet and part-3.parquet"):
        estimate_shards(given, None)


def test_a_shard_that_is_written_between_the_readings_is_reported(tmp_path: Path) -> None:
    rows = sample()
    data = write_shards(tmp_path / "data", rows)
    labels, readings = labelled(tmp_path / "l.csv", rows), []
    given = block(data, labels, label_next=5, rule="random")

    def meddling(*arguments: Any) -> Iterator[Any]:
        if readings:
            pq.write_table(pq.read_table(data / "part-2.parquet").slice(2), data / "part-2.parquet")
        readings.append(True)
        return run_in_process(*arguments)

    with pytest.raises(UserError, match=r"was written while it was read\n  at: part-2.parquet"):
        estimate_shards(given, None, meddling)


def test_a_folder_without_scored_shards_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("id,label\n1,faithful\n")
    with pytest.raises(UserError, match="no shards of Parquet"):
        estimate_shards(block(tmp_path / "data"), None)
    (tmp_path / "data" / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"no file of Parquet\n  at: b.parquet"):
        estimate_shards(block(tmp_path / "data"), None)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["pipeline.label_next=5"], "pipeline.rule=uncertainty weighs all rows"),
        (["pipeline.dataset=ragtruth"], "pipeline.dataset needs a single file"),
        (["pipeline.width=0.1"], "pipeline.width needs pipeline.labels"),
        (["engine=ray", "ray.address=ray://h:1"], "for the Ray client"),
        (["engine=ray", "pipeline=spontaneous"], "engine=ray asks no model"),
        (["engine=ray", "pipeline.predictions={file}"], "engine=ray reads scored shards"),
        (["pipeline.columns.id=null", "pipeline.predictions={file}"], "names the rows of shards"),
    ],
)
def test_what_shards_have_too_much_is_reported(overrides: list[str], words: str, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", [{"id": 1, "label": 1}])
    given = ["pipeline=estimate", f"pipeline.predictions={tmp_path}", *[one.format(file=file) for one in overrides]]
    if "pipeline=spontaneous" in overrides:
        given = overrides
    with pytest.raises(UserError) as caught:
        check_settings(plain_config("construct", *given), ConstructSettings)
    assert words in str(caught.value)


def test_rows_to_label_are_drawn_by_chance_among_all_and_waves_add_up(tmp_path: Path) -> None:
    rows = sample()
    data = write_shards(tmp_path / "data", rows)
    first = estimate_shards(block(data, label_next=60, rule="random"), None)
    again = estimate_shards(block(data, label_next=60, rule="random"), None, backwards)
    assert first.next_rows == again.next_rows and len(first.next_rows) == 60 and not first.parts[0].num_labels
    numbers = [int(str(row["id"])[1:]) for row in first.next_rows]
    counts = [sum(number in part for number in numbers) for part in (range(300), range(306, 1200))]
    assert 4 <= counts[0] <= 22 and 24 <= counts[1] <= 48, "as many of a shard as it has rows"
    by_id = {row["id"]: row for row in rows}
    filled = [{**row, "label": int(truth(by_id[str(row["id"])]))} for row in first.next_rows]
    labels = write_csv(tmp_path / "next.csv", filled)
    given = block(data, labels, label_next=40, rule="random", by="language")
    second = estimate_shards(given, None)
    check_equal(second, expected(tmp_path, rows, given))
    new, old = second.next_rows[:40], second.next_rows[40:]
    assert {row["id"] for row in old} == {row["id"] for row in filled}.difference(row["id"] for row in new)
    assert [row["label"] for row in new] == [""] * 40 and "" not in [row["label"] for row in old]
    chance = 1 - (1 - 60 / 1500) * (1 - 40 / 1440)
    assert [row["inclusion_probability"] for row in second.next_rows] == pytest.approx([chance] * 100)
    more = write_csv(tmp_path / "more.csv", [*old, *({**row, "label": 1} for row in new)])
    assert estimate_shards(block(data, more), None).parts[0].num_labels == 100


def test_rows_without_ids_are_named_by_their_place(tmp_path: Path) -> None:
    rows = sample()
    data = write_shards(tmp_path / "data" / "day=1", rows).parent
    drawn = estimate_shards(block(data, label_next=50, rule="random", columns={"id": None}), None).next_rows
    assert all(str(row["id"]).startswith("day=1/part-") for row in drawn)
    starts = {f"day=1/part-{number}": start for number, start in enumerate((0, 301, 306, 1200))}
    places = [starts[name] + int(place) for name, _, place in (str(row["id"]).rpartition(":") for row in drawn)]
    assert [row["score"] for row in drawn] == [round(rows[place]["probability"], 6) for place in places]
    filled = [{**row, "label": int(truth(rows[place]))} for row, place in zip(drawn, places, strict=True)]
    by_place = estimate_shards(block(data, write_csv(tmp_path / "a.csv", filled), columns={"id": None}), None)
    named = [{**row, "id": rows[place]["id"]} for row, place in zip(filled, places, strict=True)]
    by_id = estimate_shards(block(data, write_csv(tmp_path / "b.csv", named)), None)
    assert by_place.parts == by_id.parts
    strange = [{**row, "id": f"day=2/part-0:{place}"} for row, place in zip(filled, places, strict=True)]
    with pytest.raises(UserError, match="none of 50 labels is of these responses"):
        estimate_shards(block(data, write_csv(tmp_path / "c.csv", strange), columns={"id": None}), None)
