"""Settles which engine a run of generate.py decodes with, before its configuration is written.

Engines draw different samples and may differ at near ties, so one file of answers comes from one engine: a resumed run
keeps the one that it began with.
"""

from typing import Any

from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from generation.engines import AUTO, EngineChoice, check_engine, choose_engine
from generation.load_checkpoint import load_checkpoint


def settle_engine(cfg: Any) -> EngineChoice:
    """Replaces `engine=auto` in the configuration by what it comes to; gives the engine and why.

    Raises:
        UserError: The engine does not exist, or a run is to be resumed with another one.
    """
    check_engine(cfg.engine)
    if cfg.get("resume"):
        return _resumed_engine(cfg)
    if cfg.engine != AUTO:
        return EngineChoice(cfg.engine, f"engine={cfg.engine} is set")
    strategy = cfg.decoding.strategy
    choice = choose_engine(lambda: load_checkpoint(cfg.checkpoint, cfg.max_length), strategy=strategy)
    cfg.engine = choice.name
    return choice


def _resumed_engine(cfg: Any) -> EngineChoice:
    from omegaconf import OmegaConf

    path = RunFolder(cfg.resume).config
    began_with = OmegaConf.select(OmegaConf.load(path), "engine") if path.exists() else None
    if began_with is None:
        return EngineChoice(cfg.engine, "of the resumed run")  # opening the run tells what is wrong with it
    if cfg.engine not in (AUTO, began_with):
        hint = "leave engine out, or begin again in another run_dir"
        raise UserError(f"this run began with engine={began_with}", place=str(path), hint=hint)
    cfg.engine = began_with
    return EngineChoice(began_with, "as the resumed run began")
