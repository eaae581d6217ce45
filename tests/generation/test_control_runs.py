"""From `control=ctrl` on the command line to answers that are drawn again."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from data_modules.build import build_source
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.cli import explain
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit_workflows.answering.strategies import FeatureReader
from generation import Generator
from generation.control import Ctrl
from tests.faithkit_workflows.test_generate import generate_here
from tests.generation.judges import bits, refuse
from tests.running import SMALL_GENERATOR, train_here

ASKED = ["num_rows=12", "decoding.max_new_tokens=8", "num_examples=1"]


@pytest.fixture(scope="module")
def controlled(language_models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all three features, by a model of entailment that the test knows."""
    folder = tmp_path_factory.mktemp("controlled") / "run"
    judge = ["control=ctrl", "control.entailment=a/model", "control.load._target_=tests.generation.judges.bits"]
    weights = f"model.weights={language_models['llama']}"
    train_here(f"run_dir={folder}", "model=gpt2", weights, *judge, *SMALL_GENERATOR, "callbacks.num_examples=2")
    return folder


def read_all(split: str) -> list:
    return list(read_examples(build_source("faithdial", "embedded"), split, ReadReport(), 40))


def test_the_test_figures_are_of_each_rows_own_features(controlled: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    generator, model = Generator.load(str(controlled)), AutoModelForCausalLM.from_pretrained(controlled / "hf")
    ctrl = Ctrl(groups=generator.settings.layout.control, entailment="a/model", load=bits)  # type: ignore[arg-type]
    examples = read_all("test")
    own = FeatureReader(ctrl, tuple(generator.settings.thresholds["overlap"]))(examples)
    assert len(set(own)) > 4
    contexts = generator.encoder.contexts(examples, Counter(), own)
    total = count = 0.0
    for place, one in enumerate(examples):
        tokenizer = generator.encoder.tokenizer
        context = torch.tensor(contexts.row(place).tolist())
        said = torch.tensor([*tokenizer(one.response, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id])
        labels = torch.cat([torch.full_like(context, -100), said])
        with torch.no_grad():
            loss = model(input_ids=torch.cat([context, said])[None], labels=labels[None]).loss
        total, count = total + float(loss) * len(said), count + len(said)
    metrics = json.loads((controlled / "metrics.json").read_text())["metrics"]
    assert metrics["test/embedded-faithdial/loss"]["value"] == pytest.approx(total / count, abs=1e-5)


def test_answers_without_the_features_are_drawn_again(
    controlled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faithkit_workflows.detectors.entailment.load_entailment", bits)
    one, several = tmp_path / "one", tmp_path / "several"
    generate_here(f"checkpoint={controlled}", f"run_dir={one}", *ASKED, "resample=1")
    generate_here(f"checkpoint={controlled}", f"run_dir={several}", *ASKED, "resample=6")
    generator = Generator.load(str(controlled))
    reader = FeatureReader.of(generator.settings, entailment=None, load=bits)  # type: ignore[arg-type]
    examples = {example.id: example for example in read_all("test")}
    missing = []
    for folder in (one, several):
        said = read_predictions(folder / "predictions" / "embedded-faithdial.jsonl")
        answered = [replace(examples[id_], response=p.text, label=None) for id_, p in said.items()]
        wanted = ("<|no-first-person|>", "<|high-overlap|>", "<|entailed|>")
        missing.append([sum(t not in tokens for t in wanted) for tokens in reader(answered)])
    assert len(missing[0]) == 12 and sum(missing[1]) < sum(missing[0])
    assert all(later <= first for first, later in zip(*missing, strict=True))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["control_tokens=[high-overlap,polite]"], "knows no control token 'polite'"),
        (["control_tokens=[high-overlap,low-overlap]"], "exclude each other"),
        (["control_tokens=[high-overlap]", "checkpoint={plain}"], "knows no control token 'high-overlap'"),
        (["resample=3", "checkpoint={plain}"], "trained without control tokens"),
        (["resample=0"], "resample is 0"),
        (["resample=3", "decoding=greedy"], "writes the same again"),
        (["resample=3", "detector=x"], "resample and detector exclude each other"),
    ],
)
def test_what_cannot_be_asked_for_is_told(
    options: list[str], problem: str, controlled: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    given = [f"checkpoint={controlled}", *(option.format(plain=tiny_llama) for option in options)]
    with pytest.raises(UserError, match=problem) as caught:
        generate_here(*given, f"run_dir={tmp_path / 'run'}", *ASKED)
    assert len((explain(caught.value) or "").splitlines()) <= 5


def test_any_critic_of_ours_judges_entailment(trained: Path) -> None:
    from faithkit_workflows.detectors.entailment import load_entailment

    ctrl = Ctrl(groups=("entailment",), entailment=str(trained), load=load_entailment)
    found = ctrl.measure(read_all("test")[:8], keep=True)["entailment"]
    assert set(found.tolist()) <= {1, 2}, "a critic knows no contradiction"  # type: ignore[union-attr]
    again = Ctrl(groups=("entailment",), entailment=str(trained), load=refuse)  # type: ignore[arg-type]
    assert again.measure(read_all("test")[:8], keep=True)["entailment"].tolist() == found.tolist()  # type: ignore[union-attr]
