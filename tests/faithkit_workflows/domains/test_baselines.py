"""Baselines that are fitted for a domain on other domains only."""

import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.baselines.word_features import Values
from faithkit.errors import UserError
from faithkit.files.model_folder import CARD
from faithkit.records import FAITHFUL, HALLUCINATED, Example
from faithkit_workflows.domains import baselines as module
from faithkit_workflows.domains.baselines import (
    ALL,
    AUTHOR,
    LENGTH,
    THRESHOLD,
    WORDS,
    DomainBaselines,
    Features,
    fit_regression,
    measure_response_only,
    model_key,
)
from faithkit_workflows.domains.domain_rows import DomainRows, Rows, read_all_domains
from faithkit_workflows.settings.benchmark_blocks import DEV
from tests.running import plain_config
from tests.tiny import write_bert


def draw_rows(seed: int, size: int = 200, share: float = 0.5, sign: float = 1.0) -> tuple[Values, Values]:
    """Draws rows whose first feature predicts the label, with this sign."""
    generator = np.random.default_rng(seed)
    gold = np.arange(size) < share * size
    return np.column_stack([sign * (gold + generator.normal(0, 0.4, size)), generator.normal(0, 1, size)]), gold


def test_a_baseline_orders_a_domain_that_it_was_not_trained_on() -> None:
    features, gold = draw_rows(9)
    scores = fit_regression([draw_rows(1), draw_rows(2)]).predict_proba(features)[:, 1]
    assert scores[gold].mean() > scores[~gold].mean() + 0.3
    turned = fit_regression([draw_rows(1, sign=-1), draw_rows(2, sign=-1)]).predict_proba(features)[:, 1]
    assert turned[gold].mean() < turned[~gold].mean()


def test_a_threshold_calls_both_classes_where_the_largest_domain_is_nearly_all_hallucinated() -> None:
    features, gold = draw_rows(9)
    model = fit_regression([draw_rows(1, 2000, 0.95), draw_rows(2, 100), draw_rows(3, 100)])
    called = model.predict_proba(features)[:, 1] >= THRESHOLD
    assert called[gold].mean() > 0.7 and (~called[~gold]).mean() > 0.7


def with_other_labels(rows: DomainRows, label: str | None = None) -> DomainRows:
    """Gives all rows one label, or each the other one."""
    other = {HALLUCINATED: FAITHFUL, FAITHFUL: HALLUCINATED}
    halves = {
        half: Rows(part.originals, tuple(replace(row, label=label or other[str(row.label)]) for row in part.inputs))
        for half, part in rows.halves.items()
    }
    return replace(rows, halves=halves)


def fit(domains: Mapping[str, DomainRows], name: str, folder: Path) -> dict[str, list[float | None]]:
    """Fits the baselines of a domain; gives the scores of its rows by baseline, and checks the domains learnt from."""
    baselines = DomainBaselines(domains, Features(folder), nli=None, max_fit_rows=60)
    fitted = baselines.fit(name, domains[name].select_part(DEV).inputs, DEV)
    assert all(not domains[name].domain.related_domains & set(one.facts["trained_on"]) for one in fitted)
    return {one.key: [row.score for row in one.predictions.values()] for one in fitted}


def test_a_baseline_depends_neither_on_its_domain_nor_on_related_ones(tmp_path: Path) -> None:
    config = plain_config("evaluate", "benchmark=domains", "benchmark.only=[xsum,snli,conjnli]")
    read = read_all_domains(config["benchmark"])
    pair = frozenset({"snli", "conjnli"})
    domains = read | {n: replace(read[n], domain=replace(read[n].domain, related_domains=pair)) for n in pair}
    turned = domains | {name: with_other_labels(domains[name]) for name in pair}
    before = fit(domains, "snli", tmp_path)
    assert before == fit(turned, "snli", tmp_path)
    assert before.keys() == {"overlap", "grams", "mismatch", "length", "regression"}
    assert fit(domains, "xsum", tmp_path) != fit(turned, "xsum", tmp_path)
    of_one_class = domains | {"xsum": with_other_labels(domains["xsum"], FAITHFUL)}
    assert fit(of_one_class, "snli", tmp_path) == {}, "no domain with both classes is left to learn from"


def example(number: int, response: str, hallucinated: bool, **meta: str) -> Example:
    values = {"id": str(number), "source": "s", "split": "t", "group": str(number // 2), "knowledge": "k"}
    return Example(**values, response=response, label=HALLUCINATED if hallucinated else FAITHFUL, meta=meta)


def draw_examples(num: int, response: dict[bool, str], seed: int = 0, **authors: dict[bool, str]) -> list[Example]:
    draw = random.Random(seed)
    found = []
    for i in range(num):
        wrong = draw.random() < 0.5
        words = " ".join(draw.choice("red blue green fox cat dog runs sits".split()) for _ in range(4))
        meta = {name: by_label[wrong] for name, by_label in authors.items()}
        found.append(example(i, f"{words} {response[wrong]}".strip(), wrong, **meta))
    return found


@pytest.mark.parametrize(
    ("kind", "response", "meta"),
    [
        (LENGTH, {True: "and so on and so forth", False: ""}, {}),
        (WORDS, {True: "perhaps", False: "surely"}, {}),
        (AUTHOR, {True: "", False: ""}, {"model": {True: "small", False: "large"}}),
    ],
)
def test_features_that_predict_labels_are_found(kind: str, response: dict[bool, str], meta: Any) -> None:
    found = measure_response_only(draw_examples(80, response, **meta), num_resamples=50)
    assert found[kind].value > 0.95 and (found[ALL].value > 0.95 or kind == AUTHOR)
    assert found[module.KNOWLEDGE].value == 0.5  # all of the same length


def test_labels_that_depend_on_the_knowledge_are_not_predicted() -> None:
    found = measure_response_only(draw_examples(200, {True: "", False: ""}), num_resamples=50)
    assert AUTHOR not in found and 0.35 < found[ALL].value < 0.65


@settings(max_examples=6)
@given(st.lists(st.tuples(st.text(max_size=30), st.booleans()), min_size=1, max_size=12))
def test_any_texts_are_measured_or_left_out(texts: list[tuple[str, bool]]) -> None:
    rows = [example(i, text, wrong) for i, (text, wrong) in enumerate(texts)]
    assert all(0 <= metric.value <= 1 for metric in measure_response_only(rows, num_resamples=2).values())


def test_a_model_is_identified_by_its_files(tiny_bert: Path, tmp_path: Path) -> None:
    key = model_key(str(tiny_bert))
    copy = Path(shutil.copytree(tiny_bert, tmp_path / "run" / "hf"))
    (copy / CARD).write_text("the model card is not part of the model")
    assert model_key(str(copy)) == model_key(str(tmp_path / "run")) == key
    assert model_key(str(write_bert(tmp_path / "other" / "hf", seed=1))) != key
    (copy / "tokenizer_config.json").write_text("{}")
    assert model_key(str(copy)) != key
    assert model_key("someone/some-model") == "someone/some-model"
    with pytest.raises(UserError, match="no such run or folder"):
        model_key("./nowhere")


def test_features_are_computed_again_for_another_model_at_the_same_path(tmp_path, monkeypatch) -> None:
    calls: list[str] = []

    def compute_cosines(encoder: str, knowledge: list[str], responses: list[str]) -> np.ndarray:
        calls.append(encoder)
        return np.zeros(len(responses))

    monkeypatch.setattr(module, "compute_cosines", compute_cosines)
    rows = [Example(id="1", source="s", split="t", group="g", knowledge="k", response="r")]
    folder = tmp_path / "hf"
    for seed, times in ((0, 1), (1, 2)):
        write_bert(folder, seed=seed)
        for _ in range(2):
            Features(tmp_path / "kept", encoder=str(folder)).compute("d", rows, None)
            assert len(calls) == times
