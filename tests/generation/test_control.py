"""Control: features are what a reader says they are, rows begin with their own tokens, answers are drawn again."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_modules.build import build_source, read_block
from data_modules.embedded.layouts import written_layout
from data_modules.encoding.encoder import Subset
from data_modules.encoding.sequence_layout import CAUSAL, SEQ2SEQ, TurnLayout, add_markers
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_encoder import TurnEncoder
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.cli import explain
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.records import Example
from faithkit_workflows.answering.strategies import FeatureReader
from generation import Generator
from generation.control import Ctrl, fit_terciles, levels, lexical_overlap, objective_voice
from generation.task import ControlEncoder
from generation.weights import Settings
from tests.data_modules.examples import example
from tests.faithkit_workflows.test_generate import generate_here
from tests.generation.judges import Words, bits, refuse
from tests.running import SMALL_GENERATOR, train_here

GROUPS = ("voice", "overlap", "entailment")
SELF = ["I do.", "so am i", "It is MINE!", "I'm here", "I’d say so", "me-too", "ask myself"]
OTHERS = ["", "It mines coal.", "Myanmar", "They'll see", "The iMac", "meme", "you and we"]


@pytest.mark.parametrize("said", [*SELF, *OTHERS])
def test_a_speaker_who_speaks_of_themselves_is_no_objective_voice(said: str) -> None:
    assert objective_voice(said) == (said in OTHERS)


def test_overlap_is_the_share_of_said_words_that_the_knowledge_has() -> None:
    assert lexical_overlap("The river is long.", "the LONG, long road") == 3 / 4
    assert lexical_overlap("The river", "") == lexical_overlap("The river", "...") == lexical_overlap("", "any") == 0


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([0.0, 0.1, 0.2, 0.3, 0.4, 0.5], [0, 0, 1, 1, 2, 2]),
        ([1.0, 0.0, 1.0, 0.0, 1.0, 0.5], [2, 0, 2, 0, 2, 1]),
        ([0.0, 0.0, 0.0, 0.0, 0.5, 1.0], [1, 1, 1, 1, 2, 2]),  # nothing lies below a boundary of 0
        ([0.7], [2]),
        ([0.5] * 5, [2] * 5),
    ],
)
def test_terciles_part_in_three_and_equal_values_stay_together(values: list[float], found: list[int]) -> None:
    column = np.array(values)
    assert levels({"overlap": column}, fit_terciles(column))[:, 0].tolist() == found


ROWS = [
    example(id="a", group="a", knowledge="the river is long", response="yes the river is long"),
    example(id="b", group="b", knowledge="the river is long", response="no i know a city"),
    example(id="c", group="c", knowledge="the king is old", response="the king was great"),
    example(id="d", group="d", knowledge="the king is old", response="the king was great"),
]
WANTED = [  # of ROWS; terciles of 4/5, 0, 1/2, 1/2
    ("<|no-first-person|>", "<|high-overlap|>", "<|entailed|>"),
    ("<|first-person|>", "<|low-overlap|>", "<|contradicted|>"),
    ("<|no-first-person|>", "<|high-overlap|>", "<|neutral|>"),
    ("<|no-first-person|>", "<|high-overlap|>", "<|neutral|>"),
]


def ctrl(groups: tuple[str, ...] = GROUPS, judge: Any = None, name: str = "some/model") -> Ctrl:
    return Ctrl(groups=groups, entailment=name, load=lambda _: judge or Words())


def turns(folder: Path, kind: str, *, packed: bool, groups: tuple[str, ...] = GROUPS) -> TurnEncoder:
    layout = TurnLayout(kind=kind, max_length=128, max_response_length=24, control=groups)
    tokenizer = load_tokenizer(str(folder))
    add_markers(tokenizer, layout)
    return TurnEncoder(tokenizer, layout, packed=packed)


def fitted(encoder: ControlEncoder, rows: list[Example]) -> dict[str, Any]:
    """The encoded columns, after the encoder has seen them as the rows that train."""
    columns = encoder.encode(rows, Counter())
    whole = type("Encoded", (), {"columns": columns})
    encoder.fit([Subset("x", whole, np.arange(len(rows)))])  # type: ignore[arg-type]
    return columns


@pytest.mark.parametrize(("kind", "packed"), [(SEQ2SEQ, False), (CAUSAL, True), (CAUSAL, False)])
@pytest.mark.parametrize("groups", [GROUPS, ("voice", "overlap"), ("entailment",)])
def test_a_batch_begins_with_each_rows_tokens_and_aims_at_its_response(
    kind: str, packed: bool, groups: tuple[str, ...], language_models: dict[str, Path]
) -> None:
    family = "bart" if kind == SEQ2SEQ else "llama"
    plain = turns(language_models[family], kind, packed=packed, groups=groups)
    encoder = ControlEncoder(plain, plain, ctrl(groups))
    batch = encoder.collate(fitted(encoder, ROWS))
    texts = plain.tokenizer.convert_ids_to_tokens
    rows = np.split(batch["input_ids"][0], np.cumsum(batch["sequence_lengths"])[:-1]) if packed else batch["input_ids"]
    chosen = [GROUPS.index(group) for group in groups]
    for row, wanted in zip(rows, WANTED, strict=True):
        assert texts(row[: len(groups)]) == [wanted[place] for place in chosen]
        assert texts(int(row[len(groups)])) == (plain.tokenizer.bos_token or "<|dialogue|>")
    for place, one in enumerate(ROWS):
        mine = batch["target"][batch["target_row"] == place]
        assert plain.tokenizer.decode(mine[:-1]) == one.response and mine[-1] == plain.tokenizer.eos_token_id
    # What is read at the place that predicts a token is what stands before it.
    read = batch["decoder_input_ids" if kind == SEQ2SEQ else "input_ids"].ravel()[batch["target_at"]]
    starts = np.flatnonzero(np.diff(batch["target_row"], prepend=-1))
    assert set(texts(read[starts])) == {"<|wizard|>"}
    others = np.setdiff1d(np.arange(len(read)), starts)
    assert (read[others] == batch["target"][others - 1]).all()


def test_the_reader_says_of_responses_what_training_said(language_models: dict[str, Path]) -> None:
    plain = turns(language_models["llama"], CAUSAL, packed=True)
    encoder = ControlEncoder(plain, plain, ctrl())
    fitted(encoder, ROWS)
    settings = Settings(layout=plain.layout, architecture="causal", thresholds=encoder.thresholds, origin={})
    again = Settings.from_sidecar(settings.to_sidecar())
    reader = FeatureReader.of(again, entailment="some/model", load=lambda _: Words())  # type: ignore[arg-type,return-value]
    assert reader(ROWS) == WANTED
    assert reader([example(knowledge="x", response="")]) == [("<|no-first-person|>", "<|low-overlap|>", "<|neutral|>")]


def official(id: str, *tokens: str, split: str = "train") -> Example:
    return example(id=id, split=split, response="yes", meta={"control_tokens": list(tokens)} if tokens else {})


def test_official_tokens_are_used_as_they_are(language_models: dict[str, Path]) -> None:
    given = Ctrl(groups=GROUPS, entailment=None, load=refuse, source="official")  # type: ignore[arg-type]
    rows = [
        official("a", "<no-first-person>", "<high-prec>", "<entailed>"),
        official("b", "<first-person>", "<med-prec>", "<non-entailed>"),
        official("c", split="test"),
    ]
    plain = turns(language_models["llama"], CAUSAL, packed=False)
    encoder, counts = ControlEncoder(plain, plain, given), Counter[str]()
    columns = encoder.encode(rows, counts)
    encoder.fit([Subset("x", type("Encoded", (), {"columns": columns}), np.arange(2))])  # type: ignore[arg-type]
    shown = [plain.tokenizer.convert_ids_to_tokens(row[:3]) for row in encoder.collate(columns)["input_ids"]]
    faithful = ["<|no-first-person|>", "<|high-overlap|>", "<|entailed|>"]
    assert shown == [faithful, ["<|first-person|>", "<|medium-overlap|>", "<|neutral|>"], faithful]
    assert counts["no control_tokens, given those of a faithful answer"] == 1 and encoder.thresholds == {}


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [
        ((), "row a has no control_tokens"),
        (("<first-person>", "<med-prec>"), "not one each of <first-person>, <no-first-person>; <low-prec>"),
        (("<med-prec>", "<first-person>", "<entailed>"), "row a: control_tokens is .*, not one each of"),
        (("<first-person>", "<med-prec>", "<entailed>", "<entailed>"), "row a: control_tokens is"),
    ],
)
def test_official_tokens_that_are_missing_or_others_are_an_error(tokens: tuple[str, ...], problem: str) -> None:
    given = Ctrl(groups=GROUPS, entailment=None, load=refuse, source="official")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=problem) as caught:
        given.measure([official("a", *tokens)])
    assert "hint: set control.source=measured" in str(caught.value)


def test_two_levels_of_entailment_join_contradicted_and_neutral() -> None:
    measured = [
        Ctrl(groups=("entailment",), entailment="m", load=lambda _: Words(), entailment_levels=number).measure(ROWS)
        for number in (3, 2)
    ]
    assert [one["entailment"].tolist() for one in measured] == [[2, 0, 1, 1], [2, 1, 1, 1]]


def test_equal_pairs_are_asked_once_and_the_same_data_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path))
    judge = Words()
    first = ctrl(("entailment",), judge).measure(ROWS, keep=True)
    assert len(judge.asked) == 3
    later = Ctrl(groups=("entailment",), entailment="some/model", load=refuse)  # type: ignore[arg-type]
    assert later.measure(ROWS, keep=True)["entailment"].tolist() == first["entailment"].tolist() == [2, 0, 1, 1]  # type: ignore[union-attr]
    other = Words()
    ctrl(("entailment",), other, "another/model").measure(ROWS, keep=True)
    assert other.asked, "another model judges anew"


def test_a_cached_encoding_belongs_to_its_features(language_models: dict[str, Path]) -> None:
    plain = turns(language_models["llama"], CAUSAL, packed=True)
    some = [ctrl(), ctrl(name="another/model"), ctrl(("voice",)), ctrl(("voice", "overlap"))]
    prints = {ControlEncoder(plain, plain, one).fingerprint() for one in some} | {plain.fingerprint()}
    assert len(prints) == 5


def test_without_a_model_the_entailment_group_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="faithkit"):
        assert Ctrl(groups=GROUPS, entailment=None, load=refuse).groups == ("voice", "overlap")  # type: ignore[arg-type]
    assert "no entailment group" in caplog.text
    for groups, problem in (((), "without any group"), (("entailment",), "without any group"), (("mood",), "'mood'")):
        with pytest.raises(UserError, match=problem):
            Ctrl(groups=groups, entailment=None, load=refuse)  # type: ignore[arg-type]


@pytest.mark.parametrize(("control", "problem"), [("overlap", "lacks the terciles"), ("entailment", "which model")])
def test_what_cannot_be_read_off_is_told(control: str, problem: str) -> None:
    layout = TurnLayout(kind=SEQ2SEQ, max_length=64, max_response_length=8, control=(control,))
    settings = Settings(layout=layout, architecture="seq2seq", thresholds={}, origin={})
    with pytest.raises(UserError, match=problem):
        FeatureReader.of(settings, entailment=None, load=refuse)  # type: ignore[arg-type]


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


def test_a_generator_learns_official_tokens(language_models: dict[str, Path], tmp_path: Path) -> None:
    tokens = [[voice, "<low-prec>", "<entailed>"] for voice in ("<first-person>", "<no-first-person>")]
    folder = Path(written_layout("faithdial", {"train": 60, "validation": 20, "test": 20}))
    for file in (folder / f"{name}.json" for name in ("train", "valid", "test")):
        dialogues = json.loads(file.read_text())
        for number, turn in enumerate(turn for one in dialogues for turn in one["utterances"]):
            turn |= {} if file.stem == "test" else {"control_tokens": tokens[number % 2]}
        (tmp_path / file.name).write_text(json.dumps(dialogues))
    given = ["model=gpt2", f"model.weights={language_models['llama']}", "control=ctrl", "control.source=official"]
    run = tmp_path / "run"
    train_here(f"run_dir={run}", f"data.path={tmp_path}", *given, *SMALL_GENERATOR)
    counts = json.loads((run / "metrics.json").read_text())["meta"]["data"]["counts"]
    assert counts["faithdial/test"]["no control_tokens, given those of a faithful answer"] == 20
    generate_here(f"checkpoint={run}", f"run_dir={tmp_path / 'plain'}", *ASKED, "control_tokens=[low-overlap]")
    with pytest.raises(UserError, match="lacks the terciles") as caught:
        generate_here(f"checkpoint={run}", f"run_dir={tmp_path / 'again'}", *ASKED, "resample=2")
    assert "control.source=measured" in str(caught.value)


def test_answers_without_the_features_are_drawn_again(
    controlled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faithkit_workflows.detectors.entailment.load_entailment", bits)
    one, several = tmp_path / "one", tmp_path / "several"
    generate_here(f"checkpoint={controlled}", f"run_dir={one}", *ASKED, "resample=1")
    generate_here(f"checkpoint={controlled}", f"run_dir={several}", *ASKED, "resample=6")
    generator = Generator.load(str(controlled))
    reader = FeatureReader.of(generator.settings, entailment=None, load=bits)  # type: ignore[arg-type]
    examples = {one.id: one for one in read_block({"dataset": "faithdial", "path": "embedded", "split": "test"})}
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
