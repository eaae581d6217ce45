"""Packages of the environment: optional ones and their extras, plug-ins of others, and the versions of a result.

A command asks for its packages before its work begins (`require`, `missing`). Where a package is imported,

with needs_package("LoRA adapters"):
    import peft

Plug-ins are entry points of installed packages, and objects named as `module:Class`.
"""

import json
import logging
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from urllib.parse import unquote, urlsplit

from faithkit.errors import UserError

log = logging.getLogger("faithkit")

PAPERS = "faithkit_papers"
# The extra of pyproject.toml that brings a package; "" for a plain install, which has more than scoring needs.
# faithkit_papers is part of faithkit that the rest does without.
EXTRAS = {
    **dict.fromkeys(("datasets", "pyarrow", "pytorch_lightning", "scipy", "sklearn"), ""),
    **dict.fromkeys(("spacy", "torchmetrics", "wandb", PAPERS), ""),
    **dict.fromkeys(("fastapi", "uvicorn", "prometheus_client", "httpx", "mcp"), "serve"),
    "aiohttp": "openai",
    "anyio": "openai",
    "matplotlib": "plots",
    "nltk": "detectors",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "openai": "openai",
    "openpyxl": "xlsx",
    "opentelemetry": "traces",
    "pandas": "construct",
    "peft": "lora",
    "ray": "ray",
    "sacrebleu": "eval",
    "tensorboard": "tensorboard",
    "vllm": "vllm",
}

# What needs packages that requirements/score.lock leaves out: a command, or a setting of one.
NEEDS = {
    "faithkit train": ("pytorch_lightning", "torchmetrics", "pyarrow", "sklearn"),
    "faithkit serve": ("fastapi", "uvicorn", "prometheus_client", "httpx"),
    "faithkit mcp": ("mcp",),
    "faithkit reproduce": (PAPERS,),
    "fitting a detector": ("sklearn",),
    "accuracy beside simple baselines": ("sklearn",),  # trees on counted features are one
    "benchmark.fit_on": ("sklearn",),
    "benchmark=domains": ("sklearn",),
    "a benchmark of a paper": (PAPERS,),
    "a benchmark of responses": ("sacrebleu",),
    "pipeline=describe": (PAPERS, "pandas"),
    "pipeline=estimate": ("pyarrow",),
    "pipeline=annotate": (PAPERS,),
    "pipeline=agreement": (PAPERS, "sklearn", "scipy"),
    "near_duplicates": ("sklearn",),
    "a logger": ("pytorch_lightning",),
    "logger=tensorboard": ("tensorboard",),
    "logger=wandb": ("wandb",),
    "a Parquet file": ("pyarrow",),
    "an .xlsx workbook": ("openpyxl",),
    "a saved dataset": ("pyarrow",),
    "plots": ("matplotlib",),
    "model.lora_rank": ("peft",),
    "engine=openai": ("openai", "aiohttp", "anyio"),
    "engine=vllm": ("vllm",),
    "engine=ray": ("ray",),
    "precision=onnx": ("onnxruntime",),
    "format=onnx": ("onnx", "onnxscript", "onnxruntime"),
    "a detector that divides texts into sentences": ("nltk",),
}

# Tools with an adapter in faithkit_workflows/adapters/, by their import: the project that pip installs.
TOOLS = {
    "deepeval": "deepeval",
    "haystack": "haystack-ai",
    "inspect_ai": "inspect-ai",
    "langchain_core": "langchain-core",
    "llama_index": "llama-index-core",
    "lm_eval": "lm-eval",
    "mlflow": "mlflow",
    "pytest": "pytest",
    "ragas": 'ragas "langchain-community<0.4"',  # ragas 0.4.3 imports a module that later ones do not have
    "trl": "trl",
}
DATASETS, DETECTORS, METRICS = (f"faithkit.{name}" for name in ("datasets", "detectors", "metrics"))  # the groups
OBJECT = re.compile(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")  # module:Class


def install_hint(*packages: str) -> str:
    """Gives the command that installs packages into this environment."""
    if packages[0] in TOOLS:
        return f"pip install {TOOLS[packages[0]]}"
    extras = ",".join(dict.fromkeys(EXTRAS[package] for package in packages if EXTRAS[package]))
    name, address = _source()
    requirement = f"{name}{f'[{extras}]' if extras else ''}{f' @ {address}' if address else ''}"
    return f"pip install {requirement}" if re.fullmatch(r"[\w./-]+", requirement) else f'pip install "{requirement}"'


def _source() -> tuple[str, str]:
    """Finds what pip installs again: "." or a folder for a checkout, and the name, with an address, for other sources.

    The name alone stands for what a package index has under it, so it is used where faithkit came from one.
    """
    root = Path(__file__).resolve().parents[1]
    if not (root / "pyproject.toml").is_file():  # not a checkout, on the path or installed as an editable one
        address = _direct_url()
        if address is None:
            return "faithkit", ""
        url = str(address["url"])
        if "dir_info" not in address:
            version = address.get("vcs_info")
            return "faithkit", f"{version['vcs']}+{url}@{version['commit_id']}" if version else url
        root = Path(unquote(urlsplit(url).path))
    return "." if root == Path.cwd() or not root.is_dir() else str(root), ""


def _direct_url() -> dict[str, Any] | None:
    """Reads where pip installed faithkit from; None for a package index (PEP 610)."""
    try:
        text = distribution("faithkit").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    return json.loads(text) if text else None


def missing_package(purpose: str, *packages: str) -> UserError:
    """Makes the error for packages that are not installed."""
    names = " and ".join(filter(None, [", ".join(packages[:-1]), packages[-1]]))
    noun = "package" if len(packages) == 1 else "packages"
    return UserError(f"{purpose} needs the {noun} {names}", hint=install_hint(*packages))


def missing(use: str, purpose: str | None = None) -> Iterator[UserError]:
    """Yields an error that names all packages that are missing for a command or a setting.

    Args:
        use: A key of `NEEDS`.
        purpose: What needs them, in the error; None takes `use`.
    """
    if packages := [package for package in NEEDS[use] if is_missing(package)]:
        yield missing_package(purpose or use, *packages)


def require(use: str) -> None:
    """Refuses a command whose packages are not all installed; one without an entry in `NEEDS` needs none.

    Raises:
        UserError: It names them, and the command that installs them.
    """
    for error in missing(use) if use in NEEDS else ():
        raise error


def is_missing(package: str) -> bool:
    """Reports whether a package is not installed; it is not imported."""
    if sys.modules.get(package) is not None:
        return False
    try:
        return find_spec(package) is None
    except ImportError:  # by a finder that forbids it
        return True


@contextmanager
def needs_package(purpose: str) -> Iterator[None]:
    """Makes a failed import of an optional package a UserError.

    Args:
        purpose: What needs the package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (package := missing_name(error)) is None:
            raise
        raise missing_package(purpose, package) from error


def missing_name(error: ModuleNotFoundError) -> str | None:
    """Names the optional package that an import did not find; None if it is another one."""
    package = (error.name or "").partition(".")[0]
    return package if package in EXTRAS else None


def environment() -> dict[str, Any]:
    """Collects versions, commit and hardware; no secrets, no paths."""
    packages = ("torch", "transformers", "pytorch-lightning", "datasets", "tokenizers", "hydra-core")
    facts: dict[str, Any] = {"python": platform.python_version(), "platform": platform.platform()}
    for name in packages:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = None
    facts["git_commit"] = _git("rev-parse", "HEAD")
    facts["git_dirty"] = bool(_git("status", "--porcelain", "--untracked-files=no"))
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        facts["cpu"] = next(models, platform.machine())
    except OSError:
        facts["cpu"] = platform.processor()
    facts["cpu_count"] = os.cpu_count()
    if "torch" in sys.modules:
        import torch

        facts["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return facts


def _git(*arguments: str) -> str | None:
    root = Path(__file__).resolve().parents[1]
    if not (root / "pyproject.toml").exists():
        return None  # installed: a repository around the environment is not ours
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def load_plugins(group: str, kind: type[Any]) -> Mapping[str, Any]:
    """Loads what installed packages declare in a group, by name; names those that fail in a warning.

    Args:
        kind: The class of the objects; others are left out too.
    """
    found: dict[str, Any] = {}
    for point in entry_points(group=group):
        try:
            plugin = point.load()
        except Exception as error:  # its module may raise anything
            log.warning("plug-in %s (%s) is left out: %s: %s", point.name, point.value, type(error).__name__, error)
            continue
        if isinstance(plugin, kind):
            found.setdefault(point.name, plugin)
        else:
            log.warning("plug-in %s (%s) is left out: it is no %s", point.name, point.value, kind.__name__)
    return found


def plugin_names(group: str) -> set[str]:
    """Returns the names that installed packages declare in a group, without importing anything."""
    return {point.name for point in entry_points(group=group)}


def object_name(text: str) -> str | None:
    """Returns the `module:Class` that a text begins with, if there is a package of this name; imports nothing.

    More may follow a further colon: `module:Class:ARGUMENT`.
    """
    match = OBJECT.match(text)
    if match is None or text[match.end() : match.end() + 1] not in ("", ":") or match[1] in plugin_names(DETECTORS):
        return None
    return match[0] if find_spec(match[1]) else None


def load_object(name: str) -> Any:
    """Imports `module:Class`.

    Raises:
        UserError: The import fails, or there is no such class.
    """
    try:
        return resolve_name(name)
    except Exception as error:  # its module may raise anything
        hint = "name an object that can be imported, as module:Class"
        raise UserError(f"cannot import {name}: {type(error).__name__}: {error}", hint=hint) from error
