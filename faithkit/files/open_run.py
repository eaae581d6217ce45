"""Opens the folder that a command works in, of a new run or one to go on with; its settings are checked before."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.atomic import disk_errors
from faithkit.files.resumed_config import ResumedConfig
from faithkit.files.run_folder import RUN_DIR_VARIABLE, RunFolder, how_to_go_on, process_rank
from faithkit.files.run_lock import run_lock
from faithkit.files.saved_config import write_config
from faithkit.signals import Interrupted
from faithkit.targets import check_names, named_in


@contextmanager
def open_run(
    cfg: Any,
    kind: str,
    schema: Any = None,
    *,
    may_change: Sequence[str] = (),
    check_resumed: Callable[[RunFolder, Mapping[str, Any]], None] = lambda run, config: None,
) -> Iterator[tuple[RunFolder, dict[str, Any]]]:
    """Opens or makes this run's folder, and holds its lock; gives it with its configuration as plain containers.

    All checks come before the folder. A resumed run has its own configuration. A command that is stopped in between
    says how to go on.

    Args:
        cfg: The composed configuration; `run_dir` and `resume` are read from it.
        kind: Part of the name of a new folder.
        schema: What the configuration must be, for `faithkit.settings.check`; None checks no types. A new run of a
            command line is not checked again.
        may_change: The keys that a resumed run may take from this command (faithkit/files/resumed_config.py).
        check_resumed: Refuses new settings that what the run holds does not allow, before they are written.
    """
    with ExitStack() as stack:
        resumed = bool(cfg.get("resume"))
        if resumed:
            run, config = _resume(cfg, schema, may_change, check_resumed, stack)
        else:
            run, config = _begin(cfg, kind, schema, stack)
        os.environ[RUN_DIR_VARIABLE] = str(run.path.resolve())
        try:
            yield run, config
        except Interrupted as error:
            raise Interrupted(str(error) or how_to_go_on(_script(config), run.path)) from error


def _script(config: Mapping[str, Any]) -> str:
    from faithkit.settings.command_line import MADE_BY

    return next((script for key, script in MADE_BY.items() if key in config), "train")


def _resume(
    cfg: Any,
    schema: Any,
    may_change: Sequence[str],
    check_resumed: Callable[[RunFolder, Mapping[str, Any]], None],
    stack: ExitStack,
) -> tuple[RunFolder, dict[str, Any]]:
    run, overrides = RunFolder(str(cfg.get("resume"))), _overrides() or []
    is_first = process_rank() == 0
    if is_first and run.config.exists():
        stack.enter_context(run_lock(run.path))
    resumed = ResumedConfig(run, plain(cfg, throw_on_missing=False), overrides, may_change)
    config = resumed.config
    trusted = [override for override in overrides if override.lstrip("+").startswith("extensions=")]
    check_names(config, named_in(trusted, config), place=str(run.config))
    _check(config, schema)
    check_resumed(run, config)
    if is_first:
        resumed.record()
    return run, config


def _begin(cfg: Any, kind: str, schema: Any, stack: ExitStack) -> tuple[RunFolder, dict[str, Any]]:
    config, overrides = plain(cfg), _overrides()
    if overrides is None:  # called from Python, by someone who names the classes
        _check(config, schema)
    else:  # a command line, whose values are checked when it starts
        check_names(config, named_in(overrides, config))
    if process_rank() > 0:
        chosen = os.environ.get(RUN_DIR_VARIABLE) or config.get("run_dir")
        if not chosen:
            hint = "under torchrun or srun set run_dir=PATH"
            raise UserError("several processes, but no common run folder", hint=hint)
        return RunFolder(chosen), config
    path = _existing(str(config["run_dir"])) if config.get("run_dir") else _new_folder(kind)
    stack.enter_context(run_lock(path))
    run = RunFolder(path)
    if run.config.exists() and run.has_work():
        hint = f"go on with resume={path}, or choose another run_dir"
        raise UserError("this folder already holds a run", place=str(path), hint=hint)
    run.checkpoints.mkdir(exist_ok=True)
    write_config(run.config, config)
    return run, config


def _check(config: Mapping[str, Any], schema: Any) -> None:
    if schema is not None:
        from faithkit.settings.check import check_settings  # type: ignore[import-not-found,unused-ignore]

        check_settings(config, schema)


def plain(cfg: Any, *, throw_on_missing: bool = True) -> dict[str, Any]:
    """Resolves a composed configuration to plain containers.

    What is resolved is stored, shown to loggers and published with the model, so the environment, where secrets are,
    is out of reach.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from omegaconf.resolvers import oc

    OmegaConf.register_new_resolver("oc.env", _refuse_environment, replace=True)
    try:
        config = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=throw_on_missing, enum_to_str=True)
    except OmegaConfBaseException as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, UserError):
            cause = cause.__cause__ or cause.__context__
        raise cause or error from None
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def _refuse_environment(name: str, *default: Any) -> None:
    hint = f"a run records all its settings: write the value itself, or let the shell do it: key=${name}"
    raise UserError(f"${{oc.env:{name}}} would be copied into the run's files and its loggers", hint=hint)


def _overrides() -> list[str] | None:
    """Reads the overrides of this command; None where no command is running."""
    from hydra.core.hydra_config import HydraConfig

    try:
        return list(HydraConfig.get().overrides.task)
    except ValueError:
        return None


def _existing(path: str) -> Path:
    with disk_errors(path):
        Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


def _new_folder(kind: str) -> Path:
    """Makes a folder that no other command has: a sweep starts several within a second."""
    stem, attempt = f"runs/{datetime.now():%Y-%m-%d_%H-%M-%S}-{kind}", 1
    while True:
        path = Path(stem if attempt == 1 else f"{stem}-{attempt}")
        with disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.mkdir()
            except FileExistsError:
                attempt += 1
                continue
        return path
