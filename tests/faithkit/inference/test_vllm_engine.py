"""vLLM is asked for what `Decoding` says; where it cannot run, the hint is told. Its own runs need it installed."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from faithkit.errors import UserError
from faithkit.inference.text import Decoding, LocalOptions, Prompt
from faithkit.inference.vllm_engine import VllmEngine, check_platform, sampling_params
from tests.faithkit.inference.models import EOS, model_of, prompts


def platform(monkeypatch: pytest.MonkeyPatch, *, unspecified: bool = False, cpu: bool = True) -> None:
    """As if vLLM were installed, in this build."""
    module = ModuleType("vllm.platforms")
    made = SimpleNamespace(is_unspecified=lambda: unspecified, is_cpu=lambda: cpu)
    module.current_platform = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.platforms", module)


def test_what_vllm_cannot_run_is_refused_with_a_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model_of("t5").config.save_pretrained(tmp_path)
    with (
        monkeypatch.context() as patch,
        pytest.raises(UserError, match=r"not installed\n  hint: .*engine=transformers"),
    ):
        patch.setitem(sys.modules, "vllm", None)
        VllmEngine(str(tmp_path), LocalOptions(), eos_id=EOS, max_length=64)
    platform(monkeypatch)
    with pytest.raises(UserError, match=r"encoder-decoder\n.*\n  hint: use engine=transformers"):
        VllmEngine(str(tmp_path), LocalOptions(), eos_id=EOS, max_length=64)
    platform(monkeypatch, unspecified=True)
    with pytest.raises(UserError, match="finds no device"):
        check_platform()


def test_every_setting_arrives() -> None:
    given = {"top_p": 0.7, "temperature": 0.8, "repetition_penalty": 1.2}
    limits = {"max_new_tokens": 9, "min_new_tokens": 2, "num_samples": 3}
    decoding = Decoding(strategy="nucleus", **given, **limits)
    asked = sampling_params(decoding, "p1", EOS)
    expected = {**given, "n": 3, "max_tokens": 9, "min_tokens": 2, "stop_token_ids": [EOS]}
    assert expected.items() <= asked.items()
    assert asked["seed"] == sampling_params(decoding, "p1", EOS)["seed"] != sampling_params(decoding, "p2", EOS)["seed"]
    assert sampling_params(Decoding(), "p1", EOS)["temperature"] == 0.0


def test_what_vllm_writes_is_told_as_any_engine_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = SimpleNamespace(token_ids=[7, 8, EOS], finish_reason="stop", cumulative_logprob=-2.5)
    cut = SimpleNamespace(token_ids=[7, 8, 9], finish_reason="length", cumulative_logprob=-3.0)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=dict, TokensPrompt=dict))  # type: ignore[arg-type]
    engine = VllmEngine.__new__(VllmEngine)
    engine.eos_id, engine.request = EOS, {}
    output = SimpleNamespace(outputs=[ended, cut])
    engine.llm = SimpleNamespace(generate=lambda asked, settings, use_tqdm: [output for _ in asked])
    asked: list[Prompt] = prompts(2)
    first, second, *others = engine.generate(asked, Decoding(strategy="nucleus", num_samples=2))
    assert (first.id, first.sample, first.ids, first.logprob, first.finished) == ("p0", 0, (7, 8), -2.5, True)
    assert (second.id, second.sample, second.ids, second.logprob, second.finished) == ("p0", 1, (7, 8, 9), -3.0, False)
    assert [c.id for c in others] == ["p1", "p1"]
    with pytest.raises(UserError, match="no beams"):
        list(engine.generate(asked, Decoding(strategy="beam")))
