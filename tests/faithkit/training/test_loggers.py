"""metrics.csv and TensorBoard's events: no kill, resume or damage loses what can be read."""

import csv
from pathlib import Path

import pytest
import torch

from faithkit.files.run_folder import RunFolder
from faithkit.packages import environment
from faithkit.statistics.metric import Metric
from faithkit.training.loggers import CsvFiles, CsvLogger, TensorBoardEvents
from faithkit.training.stages import Finished


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def killed(folder: Path) -> Path:
    """The file of a training that was killed: whatever was logged is in it, without any further call."""
    logger = CsvLogger(folder)
    logger.log_metrics({"train/loss": torch.tensor(0.5), "epoch": 0}, 9)
    logger.log_metrics({"train/loss": 0.25}, 19)
    logger.log_metrics({"validation/x/f1": 0.75}, 24)
    logger.log_metrics({"train/loss": 0.125}, 29)
    return folder / "metrics.csv"


def test_a_line_is_in_the_file_at_once_and_a_killed_resume_leaves_the_curve_up_to_the_checkpoint(
    tmp_path: Path,
) -> None:
    file = killed(tmp_path)
    values = [tuple(row[name] for name in ("step", "train/loss", "validation/x/f1", "epoch")) for row in rows_of(file)]
    assert values == [("9", "0.5", "", "0"), ("19", "0.25", "", ""), ("24", "", "0.75", ""), ("29", "0.125", "", "")]
    CsvLogger(tmp_path, first_step=25)  # killed before it has logged anything
    assert [row["step"] for row in rows_of(file)] == ["9", "19", "24"]
    for _ in range(2):  # killed again before the next checkpoint
        resumed = CsvLogger(tmp_path, first_step=25)
        resumed.log_metrics({"train/loss": 1.0, "new": 2}, 29)
    assert [row["step"] for row in rows_of(file)] == ["9", "19", "24", "29"]
    assert rows_of(file)[-1] == {"step": "29", "train/loss": "1.0", "new": "2", "validation/x/f1": "", "epoch": ""}


def test_a_resume_from_the_beginning_keeps_the_file_until_there_is_another(tmp_path: Path) -> None:
    file = killed(tmp_path)
    before = file.read_text()
    resumed = CsvLogger(tmp_path)
    assert file.read_text() == before
    resumed.log_metrics({"train/loss": 2.0}, 9)
    assert rows_of(file) == [{"step": "9", "train/loss": "2.0"}]
    file.write_bytes(b"")  # an empty file and a deleted one begin anew
    logger = CsvLogger(tmp_path, first_step=10)
    for step in (19, 29):
        logger.log_metrics({"loss": 1.0}, step)
        assert rows_of(file) == [{"step": str(step), "loss": "1.0"}]
        file.unlink()


@pytest.mark.parametrize(
    "end",
    [
        "29,0.1",  # a cut last line
        "29,0.125,\r\nNaN steps,1,\r\n",
        "29,0.125,\r\n-3,0.1,\r\n",
        "29,0.125,\r\n30,0.1\r\n31,1,2,3,4,5\r\n\r\n",
        "29,0.125,\r\n" + "\0" * 5000,  # a power cut
        '29,0.125,\r\n"30,0.1,\r\n',  # an open quote
        "29,0.125,\r\n30," + "9" * 200_000 + "x,\r\n",
        "29,0.125,\r\n30,\udcff,\r\n",
    ],
)
def test_damaged_lines_are_left_out_and_said(
    end: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faithkit.training.loggers.log.propagate", True)
    file = tmp_path / "metrics.csv"
    text = f"step,train/loss,x\r\n9,0.5,\r\n19,0.25,\r\n{end}"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    resumed = CsvLogger(tmp_path, first_step=1000)
    assert "damaged lines are left out" in caplog.text
    resumed.log_metrics({"train/loss": 3.0}, 1009)
    found = [(row["step"], row["train/loss"]) for row in rows_of(file)]
    assert found[:2] == [("9", "0.5"), ("19", "0.25")] and found[-1] == ("1009", "3.0")
    assert len(found) == (3 if end == "29,0.1" else 4)


@pytest.mark.parametrize("content", [b"\0" * 300, b"st", b"a,b\r\n1,2\r\n", b"step,step\r\n1,2\r\n", b"\xff\xfe\n"])
def test_a_file_without_a_readable_head_is_set_aside(content: bytes, tmp_path: Path) -> None:
    for count in (1, 2):
        (tmp_path / "metrics.csv").write_bytes(content)
        CsvLogger(tmp_path, first_step=10).log_metrics({"loss": 1.0}, 19)
        assert (tmp_path / f"metrics-damaged-{count}.csv").read_bytes() == content
        assert rows_of(tmp_path / "metrics.csv") == [{"step": "19", "loss": "1.0"}]


def test_the_end_writes_metrics_with_intervals_and_a_sample(tmp_path: Path) -> None:
    metrics = {"test/a/f1": Metric(value=0.5, low=0.25, high=0.75, n=60), "test/a/loss": Metric(value=1.5)}
    samples = {"a": [{"id": "1", "response": "says, “yes”"}], "b": [{"id": "2", "answer": "no"}]}
    CsvFiles(tmp_path).log_results(Finished(run=RunFolder(tmp_path), step=9, metrics=metrics, samples=samples))
    first, second = rows_of(tmp_path / "test_metrics.csv")
    assert first == {"metric": "test/a/f1", "value": "0.5", "low": "0.25", "high": "0.75", "n": "60"}
    assert second == {"metric": "test/a/loss", "value": "1.5", "low": "", "high": "", "n": ""}
    assert rows_of(tmp_path / "test_predictions.csv") == [
        {"dataset": "a", "id": "1", "response": "says, “yes”", "answer": ""},
        {"dataset": "b", "id": "2", "response": "", "answer": "no"},
    ]


def test_tensorboard_holds_metrics_with_intervals_and_plain_texts(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "tensorboard"
    metrics = {"test/a/f1": Metric(value=0.5, low=0.25, high=0.75, n=60)}
    samples = {"a": [{"id": "1", "response": "<b>x</b> | *y*\nz", "score": None}]}
    for first_step in (0, 15):  # the second goes on at a checkpoint
        place = TensorBoardEvents(folder, first_step)
        for step in (9, 19):
            if step >= first_step:
                place.lightning.log_metrics({"train/loss": step + first_step}, step)
        place.log_results(Finished(run=RunFolder(tmp_path), step=20, metrics=metrics, samples=samples))
        place.close(0)
    events = accumulator.EventAccumulator(str(folder)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(9, 9.0), (19, 34.0)]
    found = {name: events.Scalars(f"test/a/f1{name}")[0].value for name in ("", "/low", "/high")}
    assert found == {"": 0.5, "/low": 0.25, "/high": 0.75}
    assert events.Tensors("test/a/predictions/text_summary")[-1].tensor_proto.string_val[0].decode() == (
        "| id | response | score |\n| --- | --- | --- |\n| 1 | &lt;b&gt;x&lt;/b&gt; &#124; &#42;y&#42; z |  |"
    )


def test_the_environment_holds_no_secret_and_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "s3cret-value")
    found = environment()
    assert found["python"] and "s3cret-value" not in str(found) and str(Path.home()) not in str(found)
