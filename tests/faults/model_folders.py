"""Folders of a tiny critic, tagger, generator and judge, written once a process, and how each of them is used."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from faithkit.detector import CRITIC, GENERATOR, JUDGE, TAGGER
from faithkit.errors import UserError
from tests.model_folders import make_foreign, make_older
from tests.running import temporary_folder

SEALED, OLDER, FOREIGN = "ours", "ours, without hashes", "someone else's"
MAKERS = {OLDER: make_older, FOREIGN: make_foreign}
KNOWLEDGE, RESPONSE = "the river is long and the city is old", "the king lives in the city"


@dataclass(frozen=True, slots=True)
class Model:
    """A kind of model: `write` makes its folder, and `use` loads it and gives what it says."""

    write: Callable[[Path], Any]
    use: Callable[[Path], Any]


def write_critic(folder: Path) -> None:
    """A critic of random weights."""
    from critic.sequence.settings import Settings
    from critic.weights import load_classifier
    from faithkit.calibration.score_calibration import ScoreCalibration

    settings = Settings(
        max_length=64,
        order="knowledge_response",
        calibration=ScoreCalibration(temperature=1.3, threshold=0.4, aim="f1"),
        origin={"config": {}, "data": {}},
    )
    _write(folder, load_classifier, settings)


def write_tagger(folder: Path) -> None:
    """A tagger of random weights."""
    from critic.tagger.settings import Settings, tagger_labels
    from critic.tagger.span_calibration import SpanCalibration
    from critic.weights import load_token_classifier

    settings = Settings(
        labels=tagger_labels(True), max_length=96, calibration=SpanCalibration(bias=-0.5, aim="f1"), origin={}
    )
    _write(folder, lambda weights: load_token_classifier(weights, settings.labels), settings)


def _write(folder: Path, load: Callable[[str], Any], settings: Any) -> None:
    from data_modules.encoding.tokens import load_tokenizer
    from faithkit.files.model_folder import write_folder
    from faithkit.provenance.row_keys import row_keys
    from faithkit.provenance.seen_rows import TRAINED, SeenRows
    from faithkit.records import Example
    from tests.tiny import write_bert

    bert = write_bert(folder.with_name(f"{folder.name}-bert"), num_layers=1)
    model = load(str(bert))
    model.classifier.weight.data *= 20
    row = Example(id="0", source="rows", split="train", group="0", knowledge=KNOWLEDGE, response=RESPONSE)
    seen = SeenRows.of({TRAINED: [row_keys([row])]})
    write_folder(folder, model, load_tokenizer(str(bert)), settings.to_sidecar(), seen)


def write_generator(folder: Path) -> None:
    """A generator of random weights."""
    from tests.generation.folders import write_generator

    write_generator(folder, "causal")


def write_judge(folder: Path) -> None:
    """A judge of random weights, which learnt verdicts."""
    from transformers import AutoModelForCausalLM

    from data_modules.encoding.tokens import load_tokenizer
    from faithkit.calibration.score_calibration import ScoreCalibration
    from faithkit.files.model_folder import write_folder
    from judge.prompt import read_prompt
    from judge.settings import Settings
    from tests.tiny import write_language_model

    base = write_language_model(folder.with_name(f"{folder.name}-llama"), "llama")
    settings = Settings(
        ask="verdict",
        template=read_prompt("verdict"),
        max_length=900,
        calibration=ScoreCalibration(temperature=1.3, threshold=0.4, aim="f1"),
        origin={},
    )
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    model.lm_head.weight.data *= 20
    write_folder(folder, model, load_tokenizer(str(base)), settings.to_sidecar())


def use_critic(folder: Path) -> Any:
    """The score of a response."""
    from critic import Critic

    return Critic.load(str(folder)).score(KNOWLEDGE, RESPONSE)


def use_tagger(folder: Path) -> Any:
    """Asks a tagger for its marks."""
    from critic import Tagger

    return Tagger.load(str(folder)).predict(KNOWLEDGE, RESPONSE)


def use_generator(folder: Path) -> Any:
    """Asks a generator for an answer."""
    from faithkit import Generator
    from faithkit.inference.decoding import Decoding

    decoding = Decoding(max_new_tokens=4)
    return Generator.load(str(folder)).reply(KNOWLEDGE, ["who lives in the city"], decoding=decoding)


def use_judge(folder: Path) -> Any:
    """Asks a judge for its verdict."""
    from faithkit import Judge

    return Judge.load(str(folder), precision="32-true").judge(KNOWLEDGE, RESPONSE)


MODELS = {
    CRITIC: Model(write_critic, use_critic),
    TAGGER: Model(write_tagger, use_tagger),
    GENERATOR: Model(write_generator, use_generator),
    JUDGE: Model(write_judge, use_judge),
}


@cache
def whole_folder(kind: str, maker: str) -> Path:
    """An undamaged folder; copy it before changing it."""
    folder = temporary_folder("faithkit-whole-") / kind
    if maker == SEALED:
        MODELS[kind].write(folder)
        return folder
    return MAKERS[maker](Path(shutil.copytree(whole_folder(kind, SEALED), folder)))


@cache
def wanted(kind: str, maker: str) -> Any:
    """Asks the undamaged model."""
    return MODELS[kind].use(whole_folder(kind, maker))


def refused(kind: str, folder: Path, words: str) -> None:
    """The folder is refused in these words, with a place and a hint, in at most five lines."""
    with pytest.raises(UserError, match=words) as caught:
        MODELS[kind].use(folder)
    assert caught.value.place and caught.value.hint, caught.value
    assert len(str(caught.value).splitlines()) <= 5


def copy(tmp_path: Path, kind: str, maker: str = SEALED) -> Path:
    return Path(shutil.copytree(whole_folder(kind, maker), tmp_path / "model"))
