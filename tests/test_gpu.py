"""Training and scoring on a GPU: near the CPU's results in fp32, with every kind of model."""

from pathlib import Path

import numpy as np
import pytest

from critic import Critic, Tagger
from data_modules.embedded.layouts import WRITERS
from tests.judge.test_train import TINY
from tests.running import SMALL, SMALL_GENERATOR, SMALL_TAGGER, train_here
from tests.tiny import words

pytestmark = pytest.mark.gpu
KNOWLEDGE = [words(20 + place % 90, place) for place in range(5000)]
RESPONSE = [words(3 + place % 20, place * 7) for place in range(5000)]


@pytest.mark.parametrize(("precision", "tolerance"), [("32-true", 1e-3), ("bf16", 0.05)])
def test_a_critic_scores_as_on_a_cpu(trained: Path, precision: str, tolerance: float) -> None:
    wanted = Critic.load(trained, device="cpu", max_windows="all").probabilities(KNOWLEDGE, RESPONSE)
    critic = Critic.load(trained, device="cuda", precision=precision, max_windows="all")
    found = critic.probabilities(KNOWLEDGE, RESPONSE)
    assert np.abs(found - wanted).max() < tolerance
    np.testing.assert_allclose(critic.probabilities(KNOWLEDGE[:9], RESPONSE[:9]), found[:9], atol=tolerance)


def test_a_tagger_finds_probabilities_as_on_a_cpu(trained_tagger: Path) -> None:
    texts = KNOWLEDGE[:200], RESPONSE[:200]
    wanted = Tagger.load(trained_tagger, device="cpu").predict(*texts)
    found = Tagger.load(trained_tagger, device="cuda", precision="bf16").predict(*texts)
    assert max(abs(w.score - f.score) for w, f in zip(wanted, found, strict=True)) < 0.05


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("kind", ["critic", "tagger", "judge", "t5", "gpt2"])
def test_models_train(
    kind: str, precision: str, tiny_bert: Path, language_models: dict[str, Path], tmp_path: Path
) -> None:
    if kind in ("critic", "tagger"):
        given = [*(SMALL if kind == "critic" else SMALL_TAGGER), f"model.weights={tiny_bert}"]
    elif kind == "judge":
        data = WRITERS["halludial"](tmp_path / "halludial", {"train": 48, "test": 24})
        given = [*TINY, "data=halludial", f"data.path={data}", f"model.weights={language_models['llama']}"]
    else:
        given = [*SMALL_GENERATOR, f"model={kind}", f"model.weights={language_models[kind]}"]
    given += ["logger=none", "trainer=gpu", f"trainer.precision={precision}", f"run_dir={tmp_path / 'run'}"]
    train_here(*given)
    assert (tmp_path / "run" / "metrics.json").exists()
