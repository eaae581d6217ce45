"""Opens the loggers of a training or an evaluation, and closes them at any end; logs to CSV files and TensorBoard.

The CSV files in RUN/csv hold curves and results, and stay readable after a kill at any time.
"""

import csv
import io
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from html import escape
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml
from pytorch_lightning.loggers import Logger
from pytorch_lightning.loggers.logger import DummyLogger

from faithkit.cli import DONE, FAILED, INTERRUPTED, USER_ERROR, Interrupted, explain
from faithkit.files.atomic import disk_errors, write_text
from faithkit.files.run_folder import RunFolder, process_rank
from faithkit.packages import environment
from faithkit.training.stages import Finished, Row

if TYPE_CHECKING:
    from faithkit.training.wandb_run import WandbRun

STEP = "step"
# A place that a training logs to: `lightning` is the logger of the Trainer; `close` is called once, also after errors.
Place: TypeAlias = "CsvFiles | TensorBoardEvents | WandbRun"
log = logging.getLogger("faithkit")
CSV, TENSORBOARD, WANDB = "csv", "tensorboard", "wandb"


class CsvLogger(Logger):
    """Lightning's logger for `metrics.csv`: a line is in the file as soon as it is logged.

    Lightning's CSVLogger deletes the file of an interrupted run and writes it again at a later step. This one appends
    lines, and replaces the file in one step when a metric needs a new column.

    Args:
        folder: For `metrics.csv` and `hparams.yaml`.
        first_step: The step at which training begins: lines of later steps are removed, because they are written again.
    """

    def __init__(self, folder: Path, first_step: int = 0):
        super().__init__()
        self.folder, self.file = folder, folder / "metrics.csv"
        self._columns: list[str] = []
        self._params: dict[str, Any] = {}
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            found = self.file.read_bytes() if self.file.exists() else None
        if found is None:
            return
        rows = [row for row in self._read(found) if int(row[STEP]) < first_step]
        self._columns = sorted({name for row in rows for name in row})
        if rows and (kept := _table(self._columns, rows)).encode() != found:
            write_text(self.file, kept)

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return self.folder.name

    def log_hyperparams(self, params: Any, *_: Any, **__: Any) -> None:
        self._params |= params  # Lightning adds those of the module
        write_text(self.folder / "hparams.yaml", yaml.safe_dump(self._params, allow_unicode=True))

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        numbers = {name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()}
        row = numbers | {STEP: step or 0}
        new = row.keys() - set(self._columns)
        if new or not self.file.exists():
            rows = self._read(self.file.read_bytes()) if self._columns and self.file.exists() else []
            self._columns = sorted({*self._columns, *new})
            write_text(self.file, _table(self._columns, [*rows, row]))
            return
        with disk_errors(self.file), self.file.open("a", encoding="utf-8", newline="") as file:
            file.write(_table(self._columns, [row], has_head=False))

    def _read(self, content: bytes) -> list[dict[str, str]]:
        """Reads the complete lines; a file without a readable header is renamed, not lost."""
        head, *lines = content.decode("utf-8", errors="replace").split("\n")
        columns = _fields(head)
        if lines and STEP in columns and len(set(columns)) == len(columns):
            cut = lines.pop()  # after the last line end: empty or incomplete
            rows = [row for line in lines if (row := _row(columns, line))]
            if damaged := len(lines) - len(rows) + bool(cut):
                log.warning("%s: damaged lines are left out: %d", self.file, damaged)
            return rows
        if content:
            names = (self.folder / f"metrics-damaged-{number}.csv" for number in count(1))
            aside = next(path for path in names if not path.exists())
            self.file.rename(aside)
            log.warning("%s cannot be read: it is kept as %s, and a new one is written", self.file, aside.name)
        return []


def _row(columns: Sequence[str], line: str) -> dict[str, str] | None:
    """Reads a line with a step, and a number or nothing in each other column; None for other lines."""
    fields = _fields(line)
    if len(fields) != len(columns):
        return None
    row = {name: value for name, value in zip(columns, fields, strict=True) if value}
    try:
        for value in row.values():
            float(value)
        return row if int(row[STEP]) >= 0 else None
    except (ValueError, KeyError):
        return None


def _fields(line: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r")]), [])
    except csv.Error:
        return []


def _table(columns: Sequence[str], rows: Iterable[Row], *, has_head: bool = True) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    if has_head:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


class CsvFiles:
    """Logs to RUN/csv: `metrics.csv` by step; at the end `test_metrics.csv` and `test_predictions.csv`."""

    def __init__(self, folder: Path, first_step: int = 0):
        self.folder = folder
        self.lightning = CsvLogger(folder, first_step)

    def log_results(self, finished: Finished) -> None:
        columns = ("metric", "value", "low", "high", "n")
        rows = [{"metric": name, **metric.to_dict()} for name, metric in finished.metrics.items()]
        write_text(self.folder / "test_metrics.csv", _table(columns, rows))
        samples = [{"dataset": name, **row} for name, found in finished.samples.items() for row in found]
        if samples:
            names = list(dict.fromkeys(name for row in samples for name in row))
            write_text(self.folder / "test_predictions.csv", _table(names, samples))

    def close(self, exit_code: int) -> None:
        """Does nothing: no file is open."""


class TensorBoardEvents:
    """Logs scalars by step; at the end the test metrics as scalars and a sample of predictions as a text table.

    Args:
        folder: For the event files.
        first_step: The step of a resumed training; TensorBoard hides what was logged after it before.
        settings: More arguments of Lightning's TensorBoardLogger.
    """

    def __init__(self, folder: Path, first_step: int = 0, **settings: Any):
        from pytorch_lightning.loggers import TensorBoardLogger

        more = {**settings, "purge_step": first_step} if first_step else settings
        self.lightning = TensorBoardLogger(folder.parent, name="", version=folder.name, **more)

    def log_results(self, finished: Finished) -> None:
        self.lightning.log_metrics(finished.numbers(), finished.step)
        for name, rows in finished.samples.items():
            if rows:
                head = list(rows[0])
                lines = [head, ["---"] * len(head), *([_plain(row.get(column)) for column in head] for row in rows)]
                table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
                self.lightning.experiment.add_text(f"test/{name}/predictions", table, finished.step)

    def close(self, exit_code: int) -> None:
        self.lightning.experiment.close()


def _plain(value: Any) -> str:
    """Writes a text from data so that Markdown does not interpret it."""
    text = " ".join(str("" if value is None else value).split())
    # Characters with a meaning in Markdown or HTML become entities.
    return "".join(f"&#{ord(character)};" if character in "|\\`*_[]~$" else escape(character) for character in text)


class Loggers:
    """The loggers of one training.

    Args:
        lightning: The loggers for the Trainer.
        places: Empty in all processes but the first.
    """

    def __init__(self, lightning: Sequence[Logger], places: Sequence["Place"]):
        self.lightning, self._places = list(lightning), places

    def log_results(self, finished: Finished) -> None:
        """Logs the results of a finished training in every place."""
        for place in self._places:
            place.log_results(finished)


@contextmanager
def open_loggers(
    options: Mapping[str, Any],
    run: RunFolder,
    config: Mapping[str, Any],
    *,
    job: str = "train",
    first_step: int = 0,
) -> Iterator[Loggers]:
    """Opens the loggers of the `logger` block: csv, tensorboard, wandb, or several; each is closed at the end.

    The logged hyperparameters are the run's configuration and versions; no environment variables.

    Args:
        job: train, the stage of a training in stages, or evaluate.
        first_step: The step of a resumed training.
    """
    if process_rank() > 0:
        yield Loggers([DummyLogger() for _ in options], [])
        return
    places: list[Place] = []
    with ExitStack() as ends:
        for name, settings in options.items():
            given = settings or {}
            place: Place
            if name == WANDB:
                from faithkit.training.wandb_run import WandbRun

                place = WandbRun(run, config, job, **given)
            else:
                place = {CSV: CsvFiles, TENSORBOARD: TensorBoardEvents}[name](run.path / name, first_step, **given)

            def close(_: Any, error: BaseException | None, __: Any, place: Place = place) -> None:
                if error is None:
                    place.close(DONE)
                elif isinstance(error, KeyboardInterrupt | Interrupted):
                    place.close(INTERRUPTED)
                else:
                    place.close(FAILED if explain(error) is None else USER_ERROR)

            ends.push(close)
            place.lightning.log_hyperparams({**config, "environment": environment()})
            places.append(place)
        yield Loggers([place.lightning for place in places], places)
