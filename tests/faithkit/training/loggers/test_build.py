"""All loggers of real trainings: a sweep in one process, and TensorBoard's events read back."""

from pathlib import Path

import pytest

from faithkit.files.run_folder import RunFolder
from faithkit.statistics.metric import Metric
from faithkit.training.loggers.build_loggers import TensorBoardEvents
from faithkit.training.loggers.logger_results import Finished


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
