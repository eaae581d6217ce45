"""Optional packages: the extra that brings each, and the error where one is missing.

with needs_package("LoRA adapters"):
    import peft
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from faithkit.errors import UserError

# The extra of pyproject.toml that brings a package; "" for a plain install, which has more than scoring needs.
EXTRAS = {
    **dict.fromkeys(("datasets", "pyarrow", "pytorch_lightning", "sklearn", "spacy", "torchmetrics", "wandb"), ""),
    **dict.fromkeys(("fastapi", "uvicorn", "prometheus_client", "httpx", "mcp"), "serve"),
    "aiohttp": "openai",
    "anyio": "openai",
    "joblib": "sweep",
    "matplotlib": "plots",
    "nltk": "detectors",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "openai": "openai",
    "openpyxl": "xlsx",
    "opentelemetry": "traces",
    "optuna": "sweep",
    "pandas": "construct",
    "peft": "lora",
    "ray": "ray",
    "sacrebleu": "eval",
    "submitit": "sweep",
    "tensorboard": "tensorboard",
    "vllm": "vllm",
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


def install_hint(package: str) -> str:
    """Gives the command that installs a package; it works in a checkout too, where faithkit is installed already."""
    if package in TOOLS:
        return f"pip install {TOOLS[package]}"
    return f'pip install "faithkit[{EXTRAS[package]}]"' if EXTRAS[package] else "pip install faithkit"


def missing_package(purpose: str, package: str) -> UserError:
    """Makes the error for a package that is not installed."""
    return UserError(f"{purpose} needs the package {package}", hint=install_hint(package))


def is_missing(package: str) -> bool:
    """Reports whether a package is not installed; it is not imported."""
    return sys.modules.get(package) is None and find_spec(package) is None


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
