"""Curves and results as TensorBoard events in RUN/tensorboard."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from faithkit.training.loggers.results import Finished, Row


class TensorBoardEvents:
    """Logs scalars by step; at the end the test metrics as scalars and a sample of predictions as a text table.

    Args:
        folder: Gets the event files.
        first_step: Where a resumed training begins; TensorBoard hides what was logged from there on before.
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


def _markdown(rows: Sequence[Row]) -> str:
    """Writes a Markdown table in which texts from data stay texts."""
    head = list(rows[0])
    lines = [head, ["---"] * len(head), *([_plain(row.get(name)) for name in head] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(value: Any) -> str:
    text = " ".join(str("" if value is None else value).split())
    # The characters that Markdown and HTML read: as entities they are shown and not read.
    return "".join(f"&#{ord(character)};" if character in "|\\`*_[]~$" else escape(character) for character in text)
