"""Records the environment of a result: versions, commit, hardware."""

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


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
