"""Entailment models of others score as plain transformers code with their original format does."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as t
from hypothesis import given
from hypothesis import strategies as st

from critic.entailment.checker import EntailmentChecker, count_units, divide, split_sentences
from faithkit.errors import UserError
from faithkit.published.known_detectors import (
    BY_SENTENCES,
    EVEN,
    LINES,
    TREEBANK_WORDS,
    WORDS,
    Windows,
    known_detectors,
)
from speed.known_speed import write_known
from tests.data_modules.examples import example
from tests.model_folders import cut, without
from tests.running import ROOT

NAMES = ["minicheck-roberta-large", "minicheck-deberta-v3-large", "minicheck-flan-t5-large"]
NAMES += ["factcg-deberta", "hhem-2.1-open", "alignscore-large"]
DOCUMENT = "The old mill stands by the river. It was built in 1820 by two brothers. Nobody lives there now."
LONG = " ".join(f"{DOCUMENT} Part {number} ends here." for number in range(12))
ROWS = (ROOT / "data_modules" / "everyday_answers" / "fitting.jsonl").read_text(encoding="utf-8").splitlines()[:40]
TEXTS = [LONG, *(json.loads(row)["knowledge"] for row in ROWS)]  # of a tokenizer with enough pieces
CLAIMS = ["The mill stands by the river.", "Three sisters built it in {1920}.", "A king lives there."]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("known")


@pytest.fixture(scope="module", params=NAMES)
def folder(request: pytest.FixtureRequest, root: Path) -> tuple[str, Path]:
    return request.param, write_known(root, request.param, TEXTS, hidden_size=32)


def checker_of(name: str, folder: Path, **changes: Any) -> EntailmentChecker:
    known: Any = known_detectors()[name]
    return EntailmentChecker.load(replace(known, **changes), str(folder), str(folder / "base") if known.base else "")


@torch.inference_mode()
def reference(name: str, folder: Path, document: str, claim: str) -> float:
    """P(supported) of one window and one claim, by the format that the original's repository describes."""
    tokenizer = t.AutoTokenizer.from_pretrained(folder / "base" if (folder / "base").exists() else folder)
    model: Any
    if name == "minicheck-flan-t5-large":
        model = t.AutoModelForSeq2SeqLM.from_pretrained(folder)
        text = f"predict: {document}{tokenizer.eos_token}{claim}"
        inputs = tokenizer(text, return_tensors="pt")
        logits = model(**inputs, decoder_input_ids=torch.zeros((1, 1), dtype=torch.long)).logits[0, 0]
        return float(logits[[3, 209]].softmax(-1)[1])
    if name == "hhem-2.1-open":
        from safetensors.torch import load_file

        config = t.AutoConfig.from_pretrained(folder / "base")
        model = t.T5ForTokenClassification(config).eval()
        tensors = load_file(folder / "model.safetensors")
        model.load_state_dict({key.removeprefix("t5."): tensor for key, tensor in tensors.items()}, strict=False)
        text = "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {}\n\nHypothesis: {}"
        inputs = tokenizer(text.replace("{}", document, 1).replace("{}", claim), return_tensors="pt")
        return float(model(**inputs).logits[0, 0].softmax(-1)[1])
    if name == "alignscore-large":
        state = torch.load(folder / "AlignScore-large.ckpt", weights_only=True)["state_dict"]
        model = t.RobertaModel(t.AutoConfig.from_pretrained(folder / "base")).eval()
        start = "base_model."
        model.load_state_dict({key[len(start) :]: value for key, value in state.items() if key.startswith(start)})
        pooled = model(**tokenizer(document, claim, return_tensors="pt")).pooler_output[0]
        return float((state["tri_layer.weight"] @ pooled + state["tri_layer.bias"]).softmax(-1)[0])
    model = t.AutoModelForSequenceClassification.from_pretrained(folder)
    text = f"{document}{tokenizer.eos_token}{claim}"
    if name == "factcg-deberta":
        question = f'based on the paragraph above can we conclude that "{claim}"?\n\nOPTIONS:\n- Yes\n- No'
        text = f"{document}\n\nChoose your answer: {question}\nI think the answer is "
    return float(model(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1)[1])


def test_scores_are_those_of_the_original_format(folder: tuple[str, Path]) -> None:
    found = checker_of(*folder).supported([DOCUMENT] * 3, CLAIMS)
    read = DOCUMENT.replace(". ", ".\n") if folder[0] == "factcg-deberta" else DOCUMENT  # a sentence a line
    expected = [reference(*folder, read, claim) for claim in CLAIMS]
    assert np.abs(found - expected).max() < 1e-5 and len(set(found.round(6))) == 3


def test_the_best_window_counts_for_each_claim(folder: tuple[str, Path]) -> None:
    name, path = folder
    known: Any = known_detectors()[name]
    if known.windows is None:
        checker = checker_of(name, path)
        assert checker.supported([LONG], CLAIMS[:1])[0] == pytest.approx(reference(name, path, LONG, CLAIMS[0]))
        return
    checker = checker_of(name, path, windows=replace(known.windows, rule="lines", unit="words", size=23))
    parts = [f"{DOCUMENT} Part {number} ends here." for number in range(12)]
    scores = [[reference(name, path, part, claim) for part in parts] for claim in CLAIMS]
    best = [max(row) for row in scores]
    assert np.abs(checker.supported([LONG] * 3, CLAIMS) - best).max() < 1e-5
    if known.claims == "sentences":
        assert checker.supported([LONG], [" ".join(CLAIMS)])[0] == pytest.approx(np.mean(best), abs=1e-5)


def test_scores_do_not_depend_on_the_batch_and_labels_follow_from_the_threshold(folder: tuple[str, Path]) -> None:
    checker = checker_of(*folder)
    documents, claims = [DOCUMENT, LONG, DOCUMENT, ""], [*CLAIMS, ""]
    together = checker.supported(documents, claims)
    checker.batch_tokens = 1
    assert np.abs(together - checker.supported(documents, claims)).max() < 1e-6
    rows = [example(knowledge=DOCUMENT, response=claim) for claim in CLAIMS]
    scores = [one.score or 0.0 for one in checker.predict_examples(rows)]
    threshold = sorted(scores)[1]
    checker.set_threshold(threshold)
    expected = ["hallucinated" if score >= threshold else "faithful" for score in scores]
    assert [one.label for one in checker.predict_examples(rows)] == expected


def test_a_text_beyond_the_length_is_cut_as_a_pair(root: Path) -> None:
    path = write_known(root, "alignscore-large", TEXTS, hidden_size=32)
    checker = checker_of("alignscore-large", path, max_length=24)
    cut = checker.tokenizer(LONG, CLAIMS[0], truncation="only_first", max_length=24)["input_ids"]
    assert checker.encode([(LONG, CLAIMS[0])]) == [cut]
    assert len(checker.encode([(LONG, LONG)])[0]) == 24


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("alignscore-large", without("AlignScore-large.ckpt"), "AlignScore-large.ckpt is missing"),
        ("alignscore-large", cut("AlignScore-large.ckpt"), "damaged, or has more than weights"),
        ("hhem-2.1-open", without("model.safetensors"), "model.safetensors is missing"),
        ("minicheck-roberta-large", cut("model.safetensors"), "cannot be loaded|damaged"),
    ],
)
def test_missing_and_damaged_weights_are_explained(name: str, damage: Any, words: str, tmp_path: Path) -> None:
    path = write_known(tmp_path, name, TEXTS, hidden_size=32)
    damage(path)
    with pytest.raises(UserError, match=words):
        checker_of(name, path)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return Path.mkdir, (tmp_path / "made",)  # type: ignore[return-value]

    path = write_known(tmp_path, "alignscore-large", TEXTS, hidden_size=32)
    torch.save({"state_dict": {}, "hyper_parameters": Runs()}, path / "AlignScore-large.ckpt")
    with pytest.raises(UserError, match="more than weights"):
        checker_of("alignscore-large", path)
    assert not (tmp_path / "made").exists()


TEXT = "One two three. Four five.\nSix seven eight nine. Ten. Eleven twelve."


NINE = "One two three. Four five. Six seven eight nine. Ten."
PAIRS = "One two. Three four. Five six. Seven eight. Nine ten."


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def windows(rule: str, size: int, text: str = TEXT) -> list[str]:
    return divide(text, Windows(rule=rule, unit=WORDS, size=size), words)


def test_sentences_end_as_in_english() -> None:
    text = "Dr. Smith lives in Washington, D.C. in winter. He was born on Jan. 5, 1950! Was he?"
    assert split_sentences(text) == [
        "Dr. Smith lives in Washington, D.C. in winter.",
        "He was born on Jan. 5, 1950!",
        "Was he?",
    ]


@pytest.mark.parametrize(
    ("rule", "size", "text", "expected"),
    [
        (LINES, 100, TEXT, [TEXT]),  # whole sentences, and their line breaks
        (LINES, 5, TEXT, ["One two three. Four five.", "Six seven eight nine. Ten.", "Eleven twelve."]),
        (LINES, 2, TEXT, ["One two three.", "Four five.", "Six seven eight nine.", "Ten.", "Eleven twelve."]),
        (BY_SENTENCES, 5, NINE, ["One two three.\nFour five.", "Six seven eight nine.\nTen."]),  # one a line
        (BY_SENTENCES, 2, "One two three. Four five.", ["", "One two three.", "Four five."]),  # one is too long
        (EVEN, 100, PAIRS, [PAIRS]),  # equally many sentences
        (EVEN, 9, PAIRS, ["One two. Three four.", "Five six. Seven eight.", "Nine ten."]),
    ],
)
def test_windows_are_those_of_their_rule(rule: str, size: int, text: str, expected: list[str]) -> None:
    assert windows(rule, size, text) == expected
    assert divide(text, None, words) == [text], "without windows a document is read at once"


def test_marks_count_as_words_of_the_treebank() -> None:
    assert count_units(["It's red, isn't it?", "No."], TREEBANK_WORDS, None, 0) == [8, 2]


@given(st.text(alphabet="ab .\n!", max_size=60), st.sampled_from([LINES, BY_SENTENCES, EVEN]), st.integers(1, 9))
def test_windows_keep_every_character_in_order(text: str, rule: str, size: int) -> None:
    found = windows(rule, size, text)
    assert found and "".join("".join(found).split()) == "".join(text.split())
