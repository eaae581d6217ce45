"""Weak pairs from Wizard of Wikipedia: synthetic pairs, the teacher, what becomes a record, and what is dropped."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_modules.build import build_mix, build_source
from data_modules.data_module import DataModule
from data_modules.data_options import DataOptions
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from data_modules.reading.dataset import Source, content_hash, read_examples
from data_modules.reading.exclude import DROPPED, Excluded
from data_modules.reading.rows import ReadReport
from data_modules.splits import SplitPlan
from data_modules.weak.synthetic_pairs import CHANCES, FAITHFUL_KIND, PROBABILITY, make_pairs
from data_modules.weak.teacher import Teacher, text_vectors
from data_modules.weak.wow_pairs import WeakWow
from faithkit.errors import UserError
from faithkit.provenance.row_keys import text_key
from tests.data_modules.examples import example
from tests.data_modules.official.dialogues import utterance
from tests.data_modules.official_rows import write
from tests.running import train_here

LAKE = "Lake Orvel (also Big Orvel) was formed in 1843, when the northern ice of Mount Teral melted into two valleys."
FERRY = "The ferry of Port Selm is one of the most popular in the country, because it is cheap."
BAKER = "Tam Weller was a baker of dark bread who founded several bakeries in Nolle and in Port Selm."
DOCUMENTS = [[LAKE, FERRY], [BAKER, "Dark bread is usually baked with rye, salt, water and a sourdough that is old."]]
CHAT = ["I could eat all day.", "My dog is called Bruno."]


def test_every_sentence_has_a_faithful_and_a_hallucinated_response_the_same_from_the_same() -> None:
    pairs = list(make_pairs([*DOCUMENTS, ["Too short."]], CHAT))
    assert Counter(pair.kind == FAITHFUL_KIND for pair in pairs) == {True: 4, False: 4}
    assert all(DOCUMENTS[pair.document][pair.sentence] == pair.knowledge for pair in pairs)
    first, again, other = (list(make_pairs(DOCUMENTS, CHAT, seed=seed)) for seed in (3, 3, 4))
    assert first == again != other
    kinds = {pair.kind for seed in range(40) for pair in make_pairs(DOCUMENTS, CHAT, seed=seed)}
    assert kinds == set(PROBABILITY) == {FAITHFUL_KIND, *CHANCES}
    assert PROBABILITY[FAITHFUL_KIND] < 0.5 < min(p for kind, p in PROBABILITY.items() if kind != FAITHFUL_KIND)


KNOWN = "river city king music food water stone book film game dog cat tree".split()


def test_vectors_do_not_depend_on_the_batch(tiny_bert: Path) -> None:
    teacher = Teacher(str(tiny_bert))
    texts = ["river", "the king of the old city wrote a book", "music"]
    whole = text_vectors(teacher.model, teacher.tokenizer, texts)
    for text in texts:
        alone = text_vectors(teacher.model, teacher.tokenizer, [text])[text]
        np.testing.assert_allclose(whole[text].units, alone.units, atol=1e-5)
        np.testing.assert_allclose(whole[text].mean, alone.mean, atol=1e-5)


def test_it_learns_from_few_labels_and_always_the_same(tiny_bert: Path) -> None:
    rng = np.random.default_rng(0)

    def pair(faithful: bool) -> tuple[str, str]:
        words = rng.permutation(KNOWN)
        return f"the {words[0]} of the {words[1]}", f"it is the {words[0] if faithful else words[2]}"

    labelled = [
        example(knowledge=k, response=r, label=label)
        for label in ("faithful", "hallucinated")
        for k, r in (pair(label == "faithful") for _ in range(30))
    ]
    asked = [pair(True) for _ in range(10)] + [pair(False) for _ in range(10)]
    first, second = (Teacher(str(tiny_bert), seed=1).fit(labelled).probabilities(asked) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first[:10].max() < 0.5 < first[10:].min() and first.min() >= 0.01 and first.max() <= 0.99


HISTORY = ["Tell me more."]
TOPICS = ["lake", "ferry", "baker", "bridge", "castle", "market", "garden", "tower"]


def knowledge(number: int, split: str) -> str:
    return f"The {TOPICS[number % 8]} of {split.title()} {number} was built in {1800 + number} by a famous old king."


def dialogues(split: str) -> list[dict[str, Any]]:
    def turns(d: int) -> list[dict[str, Any]]:
        said = (f"It was built in {1800 + d}.", "I love my dog more than that!")
        return [utterance(HISTORY, text, None, None, knowledge(2 * d + n, split)) for n, text in enumerate(said)]

    return [{"dialog_idx": d, "utterances": turns(d)} for d in range(6)]


@pytest.fixture
def wow(tmp_path: Path) -> Path:
    folder = tmp_path / "wow"
    write(folder / "wow_valid.json", dialogues("valid"))
    write(folder / "wow_test.json", dialogues("test"))
    replies: list[Any] = [{"dialogue": [["It is a model's reply."], [""]]} for _ in range(6)]
    replies[1] = {"dialogue": [["one turn only"]]}
    replies[2] = {"dialogue": [["word " * 60], ["A short one."]]}
    write(folder / "generations" / "gpt.json", {"generation": replies, "score": None})
    return folder


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    rows = []
    for i in range(40):
        said = f"The {TOPICS[i % 8]} is old." if i % 2 else "I was there with my dog once!"
        judged = {"response": said, "BEGIN": "Entailment" if i % 2 else "Hallucination", "VRM": "Edification"}
        rows.append({"evidence": f"The {TOPICS[i % 8]} of Nolle {i} is old.", "history": "", **judged})
    write(tmp_path / "audit" / "gold" / "wow.csv", rows)
    return tmp_path / "audit"


def weak(wow: Path, audit: Path | None, tiny_bert: Path, **options: Any) -> WeakWow:
    values = {"audit_path": audit and str(audit), "teacher": str(tiny_bert), "easy_share": 1.0, **options}
    source = build_source("weak_wow", str(wow), **values)
    assert isinstance(source, WeakWow)
    return source


def read(source: Source) -> tuple[list[Any], Counter[str]]:
    report = ReadReport()
    return list(read_examples(source, "train", report)), report.counts


def test_natural_pairs_are_turns_and_replies_with_the_teachers_word(wow: Path, audit: Path, tiny_bert: Path) -> None:
    examples, counts = read(weak(wow, audit, tiny_bert, kinds=["natural"]))
    assert all(e.label is None and 0 < e.meta["probability"] < 1 for e in examples)
    assert Counter(e.meta["kind"] for e in examples) == {"gold": 24, "gpt": 5}
    by_id = {e.id: e for e in examples}
    replies = [by_id[f"test/{place}/gpt"].response for place in ("0:0", "2:1")]
    assert replies == ["It is a model's reply.", "A short one."]
    assert counts["generations: dialogues that do not match"] == 1 and counts["generations: too long"] == 1
    assert counts["generations: empty"] == 4 and counts["audit: kept"] == 40 and counts["kept"] == 29
    assert by_id["test/0:0"].meta["probability"] < by_id["test/0:1"].meta["probability"], "a fact against a remark"
    with pytest.raises(UserError, match="no split 'train'"):
        read(weak(wow, audit, tiny_bert, splits=["train"]))
    write(wow / "generations" / "gpt.json", [])
    with pytest.raises(UserError, match="not a file of generations"):
        read(weak(wow, audit, tiny_bert, kinds=["natural"]))


def test_synthetic_pairs_need_no_labels(wow: Path, tiny_bert: Path) -> None:
    source = weak(wow, None, tiny_bert, kinds=["synthetic"], splits=["validation"])
    examples, counts = read(source)
    assert counts["synthetic: faithful"] == 12 and len(examples) == counts["kept"] == 24
    assert all(e.knowledge in {knowledge(i, "valid") for i in range(12)} and e.label is None for e in examples)
    assert [e.to_dict() for e in read(source)[0]] == [e.to_dict() for e in examples]
    short, _ = read(weak(wow, None, tiny_bert, kinds=["synthetic"], max_words=26))
    assert all(len(e.knowledge.split()) + len(e.response.split()) <= 26 for e in short)


@pytest.mark.slow
def test_nothing_is_made_from_excluded_knowledge(wow: Path, audit: Path, tiny_bert: Path) -> None:
    banned = knowledge(0, "test")
    source = weak(wow, audit, tiny_bert, kinds=["natural", "synthetic"])
    examples, counts = read(replace(source, excluded=Excluded(frozenset({text_key(banned)}))))
    assert counts[DROPPED] == 2, "once for each kind"
    assert not any("Test 0" in e.knowledge or "Test 0" in e.response for e in examples)
    assert any("Test 0" in e.knowledge for e in read(source)[0])


def test_the_cache_key_covers_every_file_and_setting(wow: Path, audit: Path, tiny_bert: Path) -> None:
    keys = {content_hash(weak(wow, audit, tiny_bert, kinds=["natural"], seed=seed), "train") for seed in (0, 1)}
    keys.add(content_hash(weak(wow, audit, tiny_bert, kinds=["natural"], validation_fraction=0.3), "train"))
    files = [wow / "wow_valid.json", wow / "generations" / "gpt.json", audit / "gold" / "wow.csv"]
    for number, file in enumerate(files, start=4):
        file.write_text(file.read_text() + "\n")
        keys.add(content_hash(weak(wow, audit, tiny_bert, kinds=["natural"]), "train"))
        assert len(keys) == number


def test_weak_pairs_train_alone_and_apart_from_what_is_held_out(wow: Path, audit: Path, tiny_bert: Path) -> None:
    # The audit judges four of the texts that weak pairs are made from: where it validates, these must not train.
    rows = [
        {"evidence": knowledge(i % 4, "valid"), "history": "", "response": "Yes.", "BEGIN": label, "VRM": ""}
        for i, label in enumerate(["Entailment", "Hallucination"] * 10)
    ]
    write(audit / "gold" / "wow.csv", rows)
    parts = [{"dataset": "weak_wow", "path": str(wow), "kinds": ["synthetic"]}]
    parts += [{"dataset": "audit", "path": str(audit)}]
    encoder = PairEncoder(tokenizer=load_tokenizer(str(tiny_bert)), max_length=64)
    data = DataModule(build_mix(parts), encoder, split_plan=SplitPlan({"validation": 0.5, "test": 0.0}))
    data.setup()
    assert [subset.name for subset in data.subsets["validation"]] == ["audit"]
    held = {e.knowledge for e in data.subsets["validation"][0].examples()}
    trained = {e.knowledge for e in data.subsets["train"][0].examples()}
    assert held and not held & trained and trained
    assert data.counts["weak_wow/train"]["dropped: knowledge occurs in validation or test"] == 2 * len(held)
    with pytest.raises(UserError, match="weak labels"):
        build_mix([{**parts[0], "only": "test"}])
    with pytest.raises(UserError, match="streaming"):
        DataModule(build_mix(parts[:1]), encoder, DataOptions(streaming=True))


@pytest.mark.slow
def test_the_recipe_runs_on_the_embedded_corpus(tiny_bert: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("data_modules.embedded.layouts.EMBEDDED_ROWS", {"train": 24, "validation": 24, "test": 48})
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path / "home"))
    options = ["callbacks.num_resamples=20", "callbacks.progress_bar=false", "trainer=cpu", "logger=none"]
    options += [f"model.weights={tiny_bert}", f"data.parts.natural.teacher={tiny_bert}", "model.support_weight=1"]
    train_here(f"run_dir={tmp_path / 'run'}", "data=weak_wow", "model.max_length=64", *options)
    settings = json.loads((tmp_path / "run" / "hf" / "faithkit.json").read_text())
    sizes = settings["origin"]["data"]["sizes"]
    assert sizes["train"].keys() == {f"embedded-{name}" for name in ("natural", "synthetic", "audit_wow", "audit_cmu")}
    assert sizes["validation"].keys() == {"embedded-audit_wow", "embedded-audit_cmu"}
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"] == {}
