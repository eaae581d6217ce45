"""Settles which engine a run of generate.py decodes with, and writes it into the run's configuration.

Engines draw different samples and may differ at near ties, so one file of answers comes from one engine: a resumed run
keeps the one that it began with.
"""

from typing import Any

from faithkit.files.resumed_config import settle
from faithkit.files.run_folder import RunFolder
from generation.engines import AUTO, EngineChoice, check_engine, choose_engine
from generation.load_checkpoint import load_checkpoint


def settle_engine(run: RunFolder, config: dict[str, Any]) -> EngineChoice:
    """Replaces `engine=auto` in the run's configuration by what it comes to; gives the engine and why.

    Raises:
        UserError: The engine does not exist.
    """
    asked = config["engine"]["name"]
    check_engine(asked)
    if asked != AUTO:
        return EngineChoice(asked, "as the run began" if run.has_work() else "is set")
    strategy = config["decoding"]["strategy"]
    choice = choose_engine(lambda: load_checkpoint(config["checkpoint"], config["max_length"]), strategy=strategy)
    config["engine"] = {"name": choice.name}
    settle(run, "engine", config["engine"])
    return choice
