"""Loads models without transformers' progress bars, and with settings of the config that the user overrides."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def quietly() -> Iterator[None]:
    """Silences progress bars from here on, and load reports within: a missing head is the point of fine-tuning."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def override(config: Any, names: Sequence[str], value: Any) -> None:
    """Sets those of the names that this config has; None leaves them as they are."""
    for name in names:
        if value is not None and hasattr(config, name):
            setattr(config, name, value)
