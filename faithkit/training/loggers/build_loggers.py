"""Opens the loggers of a training or an evaluation, and closes them at any end; and the TensorBoard logger."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from html import escape
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.loggers.logger import DummyLogger

from faithkit.cli import DONE, FAILED, INTERRUPTED, USER_ERROR, Interrupted, explain
from faithkit.environment import environment
from faithkit.files.run_folder import RunFolder, process_rank
from faithkit.training.loggers.csv_files import CsvFiles
from faithkit.training.loggers.logger_results import Finished, Row, RunLogger


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
                self.lightning.experiment.add_text(f"test/{name}/predictions", _markdown(rows), finished.step)

    def close(self, exit_code: int) -> None:
        self.lightning.experiment.close()


def _open_wandb(run: RunFolder, config: Mapping[str, Any], job: str, first_step: int, settings: Any) -> RunLogger:
    from faithkit.training.loggers.wandb_run import WandbRun

    return WandbRun(run, config, job, **settings)


def _markdown(rows: Sequence[Row]) -> str:
    """Writes a Markdown table in which texts from data are not interpreted."""
    head = list(rows[0])
    lines = [head, ["---"] * len(head), *([_plain(row.get(name)) for name in head] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(value: Any) -> str:
    text = " ".join(str("" if value is None else value).split())
    # Characters with a meaning in Markdown or HTML become entities.
    return "".join(f"&#{ord(character)};" if character in "|\\`*_[]~$" else escape(character) for character in text)


CSV, TENSORBOARD, WANDB = "csv", "tensorboard", "wandb"
Builder = Callable[..., RunLogger]


class Loggers:
    """The loggers of one training.

    Args:
        lightning: The loggers for the Trainer.
        places: Empty in all processes but the first.
    """

    def __init__(self, lightning: Sequence[Logger], places: Sequence[RunLogger]):
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
    places: list[RunLogger] = []
    with ExitStack() as ends:
        for name, settings in options.items():
            place = BUILDERS[name](run, config, job, first_step, settings or {})
            ends.push(lambda _, error, __, place=place: place.close(_exit_code(error)))
            place.lightning.log_hyperparams({**config, "environment": environment()})
            places.append(place)
        yield Loggers([place.lightning for place in places], places)


def _exit_code(error: BaseException | None) -> int:
    """Returns the exit code of the process."""
    if error is None:
        return DONE
    if isinstance(error, KeyboardInterrupt | Interrupted):
        return INTERRUPTED
    return FAILED if explain(error) is None else USER_ERROR


BUILDERS: dict[str, Builder] = {
    CSV: lambda run, config, job, first_step, settings: CsvFiles(run.path / CSV, first_step, **settings),
    TENSORBOARD: lambda run, config, job, first_step, settings: TensorBoardEvents(
        run.path / TENSORBOARD, first_step, **settings
    ),
    WANDB: _open_wandb,
}
