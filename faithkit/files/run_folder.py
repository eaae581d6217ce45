"""A run's folder: the paths of everything that a run writes, and how a run is resumed."""

import json
import logging
import os
import platform
import subprocess
import sys
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.atomic import disk_errors, make_folder, write_text

RUN_DIR_VARIABLE = "FAITHKIT_RUN_DIR"  # tells the other processes of a run which folder the first one chose
# Names in the configurations of older runs, and those of today.
MOVED = {"critic.entailment.load_entailment": "workflows.entailment.load_entailment"}
log = logging.getLogger("faithkit")


class RunFolder:
    """Paths within a run's folder.

    Args:
        whole: The folder of the whole run, where this is that of one of its stages.
    """

    def __init__(self, path: str | Path, whole: Path | None = None):
        self.path = Path(path)
        self.whole = whole or self.path

    def stage(self, name: str) -> "RunFolder":
        """Gives the folder of a stage within this run."""
        return RunFolder(self.path / name, whole=self.whole)

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        return self.checkpoints / "best.ckpt"

    @property
    def last(self) -> Path:
        return self.checkpoints / "last.ckpt"

    @property
    def previous(self) -> Path:
        return self.checkpoints / "previous.ckpt"  # the last.ckpt of before

    @property
    def hf(self) -> Path:
        return self.path / "hf"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.json"

    @property
    def predictions(self) -> Path:
        return self.path / "predictions"

    @property
    def log(self) -> Path:
        return self.path / "train.log"


def open_run(cfg: Any, kind: str, schema: Any = None) -> tuple["RunFolder", dict[str, Any]]:
    """Opens or makes the folder of this run; gives it with the configuration, a resumed run's own, as plain containers.

    Args:
        cfg: The composed configuration; `run_dir` and `resume` are read from it.
        kind: Part of the name of a new folder.
        schema: The keys and their kinds, for `faithkit.settings.check.check_settings`.
    """
    from omegaconf import OmegaConf

    if cfg.get("resume"):
        run = RunFolder(cfg.resume)
        if not run.config.exists():
            raise UserError(
                "nothing to resume: no config.yaml", place=str(run.path), hint="set resume to a run's folder"
            )
        cfg = _resumed(run, cfg)
        _check(cfg, schema)
    elif process_rank() > 0:
        chosen = os.environ.get(RUN_DIR_VARIABLE) or cfg.get("run_dir")
        if not chosen:
            raise UserError(
                "several processes, but no common run folder", hint="under torchrun or srun set run_dir=PATH"
            )
        run = RunFolder(chosen)
    else:
        run = RunFolder(cfg.get("run_dir") or _new_name(kind))
        if run.config.exists():
            hint = f"go on with resume={run.path}, or choose another run_dir"
            raise UserError("this folder already holds a run", place=str(run.path), hint=hint)
        _check(cfg, schema)
        text = OmegaConf.to_yaml(cfg, resolve=True)  # a value that is not set stops the run before it has a folder
        make_folder(run.checkpoints)
        write_text(run.config, text)
    os.environ[RUN_DIR_VARIABLE] = str(run.path.resolve())
    config = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(config, dict)
    return run, {str(key): value for key, value in config.items()}


def _check(cfg: Any, schema: Any) -> None:
    if schema is None:
        return
    from omegaconf import OmegaConf

    from faithkit.settings.check import check_settings

    config: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    check_settings(config, schema)


def process_rank() -> int:
    """Reads this process's number among those of the run, before torch is loaded."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or os.environ.get("LOCAL_RANK") or 0)


def _resumed(run: RunFolder, cfg: Any) -> Any:
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    saved = OmegaConf.create(_moved(OmegaConf.to_container(OmegaConf.load(run.config))))
    for override in HydraConfig.get().overrides.task:
        key = override.lstrip("+").partition("=")[0]
        if key in ("resume", "debug"):
            continue
        if OmegaConf.select(saved, key) is None or OmegaConf.is_dict(OmegaConf.select(saved, key)):
            hint = "a resumed run keeps its configuration: give single values (key=value) or nothing"
            raise UserError(f"{override!r} cannot change a resumed run", place=str(run.config), hint=hint)
        OmegaConf.update(saved, key, OmegaConf.select(cfg, key))
    return saved


def _moved(saved: Any) -> Any:
    """Replaces the old names of classes in a configuration by those of today."""
    if isinstance(saved, dict):
        named = {key: MOVED.get(value, value) for key, value in saved.items() if key == "_target_"}
        return {key: _moved(value) for key, value in saved.items()} | named
    return [_moved(value) for value in saved] if isinstance(saved, list) else saved


def _new_name(kind: str) -> Path:
    stem = f"runs/{datetime.now():%Y-%m-%d_%H-%M-%S}-{kind}"
    path, attempt = Path(stem), 1
    while path.exists():  # a sweep starts several within a second
        attempt += 1
        path = Path(f"{stem}-{attempt}")
    return path


class _LogFile(logging.FileHandler):
    """A log file that a full disk leaves short in silence: what writes the results will say it, once and plainly."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def log_to(path: Path, *, append: bool = True) -> None:
    """Sends our messages to the run's log file and, plainly, to the terminal."""
    make_folder(path.parent)
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    with disk_errors(path):
        file = _LogFile(path, mode="a" if append else "w", encoding="utf-8", errors="backslashreplace")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setFormatter(logging.Formatter("%(message)s"))
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(file)
    if process_rank() == 0:
        log.addHandler(terminal)


def environment() -> dict[str, Any]:
    """Collects what a result depends on beside its configuration: versions, code, hardware; no secrets, no paths."""
    packages = ("torch", "transformers", "pytorch-lightning", "datasets", "tokenizers", "hydra-core")
    facts: dict[str, Any] = {"python": platform.python_version(), "platform": platform.platform()}
    for name in packages:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = None
    facts["git_commit"] = _git("rev-parse", "HEAD")
    facts["git_dirty"] = bool(_git("status", "--porcelain", "--untracked-files=no"))
    facts["cpu"] = _cpu_name()
    facts["cpu_count"] = os.cpu_count()
    if "torch" in sys.modules:
        import torch

        facts["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return facts


def _git(*arguments: str) -> str | None:
    root = Path(__file__).resolve().parents[2]
    if not (root / "pyproject.toml").exists():
        return None  # installed: a repository around the environment is not ours
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def read_json(path: Path) -> Any:
    """Reads a JSON file of a run; a clear error where it is missing or cut short."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            "the file does not exist", place=str(path), hint="give a run's folder or its hf/ folder"
        ) from error
    except json.JSONDecodeError as error:
        raise UserError(f"broken JSON: {error.msg}", place=f"{path}, line {error.lineno}") from error
