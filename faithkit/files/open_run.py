"""Opens the folder that a command works in, of a new run or of one to resume.

A resumed run has the settings that its files were made with. Each script lists the few that may change, which are about
how it is carried out and what it shows (`MAY_CHANGE`); all others are refused by name.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.files.atomic import disk_errors
from faithkit.files.run_folder import (
    RUN_DIR_VARIABLE,
    RunFolder,
    log_to,
    process_rank,
    read_config,
    resume_hint,
    run_lock,
    write_config,
)
from faithkit.settings.config_files import script_of
from faithkit.signals import Interrupted
from faithkit.targets import check_names, named_in

_MISSING = object()
log = logging.getLogger("faithkit")


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

    All checks come before the folder. An interrupted command reports how to resume the run.

    Args:
        cfg: The composed configuration; `run_dir` and `resume` are read from it.
        kind: Part of the name of a new folder.
        schema: The `ScriptSettings` of the configuration; None checks no types. A new run of a command line has been
            checked already.
        may_change: The keys, or patterns of them, that a resumed run may take from this command.
        check_resumed: Refuses new settings that the files of the run do not allow, before they are written.
    """
    from hydra.core.hydra_config import HydraConfig

    with ExitStack() as stack:
        is_first, overrides = process_rank() == 0, None
        with suppress(ValueError):  # no command is running
            overrides = list(HydraConfig.get().overrides.task)
        if cfg.get("resume"):
            run, typed = RunFolder(str(cfg.get("resume")), may_change=may_change), overrides or []
            if is_first and run.config.exists():
                stack.enter_context(run_lock(run.path))
            config = read_config(run.config)
            run.script = script_of(config)
            changes = apply_overrides(run, config, resolve_config(cfg, throw_on_missing=False), typed, may_change)
            trusted = [override for override in typed if override.lstrip("+").startswith("extensions=")]
            check_names(config, named_in(trusted, config), place=str(run.config))
            _check(config, schema)
            check_resumed(run, config)
            if is_first and changes:
                write_config(run.config, config)
                log_to(run.log)
                log.info("resumed with %s", ", ".join(f"{key}={_text(value)}" for key, value in changes.items()))
        else:
            config = resolve_config(cfg)
            if overrides is None:  # called from Python, where the caller names the classes
                _check(config, schema)
            else:
                check_names(config, named_in(overrides, config))
            chosen = config.get("run_dir") if is_first else os.environ.get(RUN_DIR_VARIABLE) or config.get("run_dir")
            if not chosen and not is_first:
                hint = "under torchrun or srun set run_dir=PATH"
                raise UserError("several processes, but no common run folder", hint=hint)
            if chosen and is_first:
                with disk_errors(str(chosen)):
                    Path(str(chosen)).mkdir(parents=True, exist_ok=True)
            path = Path(str(chosen)) if chosen else _new_folder(kind)
            run = RunFolder(path, script=script_of(config), may_change=may_change)
            if is_first:
                stack.enter_context(run_lock(path))
                if run.config.exists() and run.has_work():
                    hint = f"go on with resume={path}, or choose another run_dir"
                    raise UserError("this folder already holds a run", place=str(path), hint=hint)
                run.checkpoints.mkdir(exist_ok=True)
                write_config(run.config, config)
        os.environ[RUN_DIR_VARIABLE] = str(run.path.resolve())
        is_new = not cfg.get("resume") and not config.get("run_dir")
        try:
            yield run, config
        except UserError:
            if is_new and is_first and not run.has_work():
                shutil.rmtree(run.path, ignore_errors=True)  # a refused command leaves nothing
            raise
        except Interrupted as error:
            raise Interrupted(str(error) or resume_hint(script_of(config), run.path)) from error


def apply_overrides(
    run: RunFolder,
    config: dict[str, Any],
    given: Mapping[str, Any],
    overrides: Sequence[str],
    may_change: Sequence[str],
) -> dict[str, Any]:
    """Sets what the command changes in the configuration of a resumed run.

    Args:
        config: The run's; it is changed in place.
        given: The configuration that the command composes.
        overrides: Those of the command, as they were typed.
        may_change: The keys, or patterns of them, that may change.

    Returns:
        The changed keys with their new values.

    Raises:
        UserError: With the first overrides that would change something else.
    """

    changes, refused = dict[str, Any](), []
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        new = _MISSING if override.startswith("~") else _select(given, key)
        if key in ("resume", "debug", "fast", "extensions"):  # about one command, and not about the run
            continue
        if _is_free(f"{key}.name", may_change) and isinstance(new, Mapping) and "name" in new:
            old = _select(config, key)
            if isinstance(old, Mapping) and new["name"] == old.get("name"):
                continue  # a group that is chosen again as it was brings its defaults, which are no changes
        if new is _MISSING:
            refused.append(f"{override} (the run has no such value)")
            continue
        for name, value in [(key, new)] if _is_free(key, may_change) else _leaves(key, new):
            old = _select(config, name)
            if old == value and isinstance(old, bool) == isinstance(value, bool):
                continue
            if _is_free(name, may_change):
                *groups, last = name.split(".")
                inner = config
                for group in groups:
                    inner = inner.setdefault(group, {})
                inner[last] = changes[name] = value
            elif value != "auto":  # which keeps what an earlier `auto` was resolved to
                first_value = f"it began with {name.rpartition('.')[2]}={_text(old)}"
                began = "the run has no such value" if old is _MISSING else first_value
                refused.append(f"{name}={_text(value)} ({began})")
    if refused:
        also = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
        hint = f"begin again in another run_dir; what may change: {', '.join(may_change)}"
        if not run.has_work():
            hint = f"nothing is written yet: give the whole command again with run_dir={run.path}"
        problem = f"a resumed run keeps its settings: {', '.join(refused[:3])}{also}"
        raise UserError(problem, place=str(run.config), hint=hint)
    return changes


def fixed_settings(run: RunFolder) -> dict[str, Any]:
    """Returns the settings in a run's config.yaml that resuming it cannot change, by dotted key."""
    path = run.whole / run.config.name
    settings = dict(_leaves("", read_config(path))) if path.exists() else {}
    return {key[1:]: value for key, value in settings.items() if not _is_free(key[1:], run.may_change)}


def _is_free(key: str, may_change: Sequence[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in may_change)


def _text(value: Any) -> str:
    if isinstance(value, bool | None):
        return {None: "null", True: "true", False: "false"}[value]
    return value if isinstance(value, str) and len(value) < 60 else shorten(value, 60)


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the single values below a key."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _leaves(f"{key}.{name}", item)
    else:
        yield key, value


def _select(config: Mapping[str, Any], key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return _MISSING
    return found


def _check(config: Mapping[str, Any], schema: Any) -> None:
    if schema is not None:
        from faithkit.settings.check import check_settings

        check_settings(config, schema)


def resolve_config(cfg: Any, *, throw_on_missing: bool = True) -> dict[str, Any]:
    """Resolves a composed configuration to plain containers.

    The result is stored, logged and published with the model, so the environment, which holds secrets, cannot be read.
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


def _new_folder(kind: str) -> Path:
    """Makes a folder that no other command has: a sweep can start several within a second."""
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
