"""Optional packages: what needs them, the extra that brings each, and the error where one is missing.

A command asks for its packages before its work begins (`require`, `missing`). Where a package is imported,

with needs_package("LoRA adapters"):
    import peft
"""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from faithkit.errors import UserError

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
