"""construct.py builds benchmarks that loaders read back, goes on after interruptions, and explains wrong settings."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from construction.steps import KEY, is_failed
from data_modules.datasets.halludial import HalluDial
from data_modules.datasets.ragtruth import RagTruth
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl
from faithkit.records import HALLUCINATED, Example
from faithkit_workflows.pipelines.reply_benchmarks import SUMMARY, prompt_values, rag_source
from faithkit_workflows.pipelines.run_chain import TextInSplit, find_shared_texts
from tests.faithkit.inference.server import Fault, answering, refusal
from tests.faithkit_workflows.pipelines.serving import (
    INDUCED,
    JUDGE,
    OTHER,
    REPLY,
    WRITER,
    WRONG,
    construct_here,
    manifest,
    overrides,
    resume,
    server,
    step_rows,
    steps,
)
from tests.tiny import write_critic

pytestmark = pytest.mark.usefixtures("quickly")


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between tries are short."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


def read(dataset: Any) -> dict[str, list[Example]]:
    return {split: list(read_examples(dataset, split, ReadReport())) for split in dataset.split_names()}


def halludial(folder: Path) -> list[Example]:
    found = read(HalluDial(path=str(folder / "benchmark")))
    groups = [{example.group for example in examples} for examples in found.values()]
    assert len(found) == 2 and not groups[0] & groups[1], "no dialogue is in two splits"
    return [example for examples in found.values() for example in examples]


def test_spontaneous_replies_are_judged_read_back_and_traced_to_model_prompt_seed_and_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with server() as served:
        construct_here(*overrides(served, tmp_path / "run", "limit=30", "seed=7"))
    examples = halludial(tmp_path / "run")
    assert len(examples) == 60 and {example.meta["model"] for example in examples} == {WRITER, OTHER}
    assert all(e.response == REPLY and e.label == HALLUCINATED and WRONG in (e.target or "") for e in examples)
    rows = step_rows(tmp_path / "run", "annotate")
    assert all(row["response"][slice(*row["spans"][0])] == WRONG for row in rows)
    asked = {model: [b for b in served.asked if b["model"] == model] for model in (WRITER, OTHER, JUDGE)}
    assert {len(bodies) for bodies in asked.values()} == {30}, "both reply alike"
    assert {body["temperature"] for body in asked[WRITER]} == {1.0}
    assert {body["temperature"] for body in asked[JUDGE]} == {0.0}
    for row, body in zip(rows, sorted(asked[JUDGE], key=lambda b: b["messages"][-1]["content"]), strict=False):
        assert row["reference"] and body["messages"][-1]["content"].count("Reference reply:") == 4
    printed = capsys.readouterr().out
    assert "label hallucinated" in printed and "response of them in train, word for word" in printed
    found = steps(tmp_path / "run")
    sampled = found[f"sample-{WRITER}"]
    (name, fingerprint), *_ = sampled["settings"]["prompts"].items()
    assert (tmp_path / "run" / "prompts" / f"{name}-{fingerprint}.txt").read_text().count("{knowledge}") == 1
    assert sampled["settings"]["decoding"]["seed"] == 7 and WRITER in sampled["engine"]
    assert sampled["versions"]["git_commit"] and found["inputs"]["settings"]["content"]


def test_induced_hallucinations_come_with_the_faithful_replies(tmp_path: Path) -> None:
    with server() as served:
        construct_here(*overrides(served, tmp_path / "run", "pipeline=induced", "limit=20", "models=null"))
    rejected = steps(tmp_path / "run")[f"factual-{JUDGE}"]["failures"]
    examples = halludial(tmp_path / "run")
    long_enough = 20 - sum(rejected.values())
    assert set(rejected) == {f"factual-{JUDGE}: over six words more"} and 0 < long_enough < 20
    labels = [example.label for example in examples]
    assert labels.count(HALLUCINATED) == 2 * long_enough and len(labels) == 3 * long_enough
    assert all(e.target == "No." and e.response != INDUCED for e in examples if e.label != HALLUCINATED)
    assert len(served.asked) == 40


def test_rag_responses_are_read_back_with_their_sources(tmp_path: Path) -> None:
    faults = [answering(message={"role": "assistant", "content": "Unable to answer based on given passages."})]
    with server() as served:
        served.always = lambda body: faults[0] if "passage 1:" in body["messages"][-1]["content"] else None
        construct_here(*overrides(served, tmp_path / "run", "pipeline=rag", "limit=30"))
    folder = str(tmp_path / "run" / "benchmark")
    found = [e for examples in read(RagTruth(path=folder, quality="all")).values() for e in examples]
    assert len(found) == 60 and {e.meta["task"] for e in found} == {"QA", "Summary", "Data2txt"}
    refused = [e for e in found if e.meta["quality"] == "incorrect_refusal"]
    assert refused and {e.meta["task"] for e in refused} == {"QA"}
    assert all(e.knowledge and e.spans == () for e in found)
    assert len([e for examples in read(RagTruth(path=folder)).values() for e in examples]) == 60 - len(refused)
    prompts = {row["prompt"] for row in read_jsonl(tmp_path / "run" / "benchmark" / "source_info.jsonl")}
    assert prompts == {body["messages"][-1]["content"] for body in served.asked}


UNUSABLE = {
    "refusal": "I'm sorry, but I cannot answer that.",
    "repeats the prompt": "You are the assistant in a conversation that rests on given knowledge.",
    "other language": "Das ist nicht bekannt und ich weiß auch nicht, wer es war.",
    "over the limit": "word " * 81,
}


def test_unusable_replies_are_counted_by_kind_and_shift_no_row(tmp_path: Path) -> None:
    kinds = iter([*UNUSABLE.values(), None])
    first = {}

    def misbehave(body: dict[str, Any]) -> Fault | None:
        if body["model"] != WRITER:
            return None
        content = body["messages"][-1]["content"]
        reply = first.setdefault(content, next(kinds, REPLY))
        if reply is None:
            return refusal(400, "this prompt is refused")
        return answering(message={"role": "assistant", "content": reply})

    with server(always=misbehave) as served:
        construct_here(*overrides(served, tmp_path / "run", "limit=12", "engine.concurrency=1"))
    name = f"sample-{WRITER}"
    counted = {f"{name}: {kind}": 1 for kind in (*UNUSABLE, "no reply")}
    assert steps(tmp_path / "run")[name]["failures"] == counted == manifest(tmp_path / "run")["result"]["failures"]
    rows = step_rows(tmp_path / "run", "annotate")
    assert [is_failed(row) for row in rows[::2]] == [True] * 5 + [False] * 7 and not any(map(is_failed, rows[1::2]))
    keys = [row["key"] for row in step_rows(tmp_path / "run", "inputs")]
    assert [row["key"].partition("@")[0] for row in rows[::2]] == keys
    assert len(halludial(tmp_path / "run")) == 24 - 5


def test_a_judge_that_keeps_to_no_form_fails_or_is_weighed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chatter = answering(message={"role": "assistant", "content": "The reply is about sailors."})

    def misbehave(body: dict[str, Any]) -> Fault | None:
        return chatter if body["model"] == JUDGE and not body.get("logprobs") else None

    with server(always=misbehave, tells={"Yes": 0.7, "No": 0.2}) as served:
        construct_here(*overrides(served, tmp_path / "strict", "limit=4"))
        construct_here(*overrides(served, tmp_path / "weighed", "limit=4", "pipeline.weigh_verdicts=true"))
    assert steps(tmp_path / "strict")["annotate"]["failures"] == {"annotate: no verdict": 8}
    assert "nothing was written" in capsys.readouterr().err and not list((tmp_path / "strict" / "benchmark").iterdir())
    rows = step_rows(tmp_path / "weighed", "annotate")
    assert {row["target"] for row in rows} == {"Yes. The reply is about sailors."}
    assert manifest(tmp_path / "weighed")["result"]["kinds"]["verdict weighed, not written"] == 8


def test_a_detector_of_ours_annotates_in_the_judges_place(trained_tagger: Path, tmp_path: Path) -> None:
    with server() as served:
        construct_here(*overrides(served, tmp_path / "run", "limit=9", f"pipeline.detector={trained_tagger}"))
    assert {body["model"] for body in served.asked} == {WRITER, OTHER}
    rows = step_rows(tmp_path / "run", "annotate")
    assert len(rows) == 18 and steps(tmp_path / "run")["annotate"]["engine"].startswith("detector ")
    for row, example in zip(rows, sorted(halludial(tmp_path / "run"), key=lambda e: e.id), strict=True):
        assert row["target"].startswith("Yes." if row["label"] == HALLUCINATED else "No.") and example.target
        assert all(row["response"][start:end].strip() in row["target"] for start, end in row["spans"])


@pytest.mark.parametrize("change", ["labels", "weights"])
def test_another_meaning_or_training_of_a_detector_annotates_again_and_asks_for_no_reply(change, tmp_path) -> None:
    critic = write_critic(tmp_path / "critic", *(("LABEL_0", "LABEL_1") if change == "labels" else ()))
    again = []
    with server() as served:
        given = overrides(served, tmp_path / "run", "limit=6", f"pipeline.detector={critic}")
        if change == "labels":
            with pytest.raises(UserError, match="this external classifier"):
                construct_here(*given)
            resume(tmp_path / "run", "labels={0: faithful, 1: hallucinated}")
            again.append("labels={0: hallucinated, 1: faithful}")
        else:
            construct_here(*given)
            weights = load_file(critic / "model.safetensors")
            others = {name: -values if name.startswith("classifier.") else values for name, values in weights.items()}
            save_file(others, critic / "model.safetensors", metadata={"format": "pt"})
        before = [row["label"] for row in step_rows(tmp_path / "run", "annotate")]
        resume(tmp_path / "run", *again)
        assert len(served.asked) == 12
    after = [row["label"] for row in step_rows(tmp_path / "run", "annotate")]
    assert all(one != other for one, other in zip(before, after, strict=True)) and len(before) == 12


def test_a_resumed_run_with_other_settings_asks_only_what_they_change(tmp_path: Path) -> None:
    with server() as served:
        construct_here(*overrides(served, tmp_path / "run", "limit=6"))
        first = len(served.asked)
        resume(tmp_path / "run", "pipeline.max_judgement_tokens=50")
        assert {body["model"] for body in served.asked[first:]} == {JUDGE} and len(served.asked) == first + 6
        with pytest.raises(UserError, match="this folder is of pipeline=spontaneous"):
            resume(tmp_path / "run", "pipeline=rag")


def test_a_dry_run_prints_three_prompts_and_a_price_and_asks_nothing(tmp_path, capsys) -> None:
    with server() as served:
        given = overrides(served, tmp_path / "run", "limit=40", "dry_run=true", "engine.price=[1,2]")
        construct_here(*given)
    printed = capsys.readouterr().out
    assert not served.asked and not (tmp_path / "run").exists()
    for name in (f"sample-{OTHER}", "annotate"):
        assert [printed.count(f"--- {name}, prompt {i} of") for i in (1, 3, 4)] == [1, 1, 0]
    assert f"(what {WRITER} replies)" in printed and "dollars" in printed and "0.0" in printed


def test_custom_prompts_replace_the_default_ones(tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "reply.txt").write_text("In {max_words} words. {history} {knowledge}")
    (folder / "system.txt").write_text("Be kind.")
    judge = Path("construction/prompts/annotate.txt").read_text()
    (folder / "annotate.txt").write_text(judge)
    with server() as served:
        construct_here(*overrides(served, tmp_path / "run", "limit=2", f"prompts={folder}"))
    assert served.asked[0]["messages"][0] == {"role": "system", "content": "Be kind."}
    assert served.asked[0]["messages"][1]["content"].startswith("In 80 words.")


SHARDS = ("pipeline=estimate", "pipeline.predictions=.")
ASKING = ("engine=openai", "engine.model=x", "pipeline.path=embedded", "pipeline.embedded_rows={train: 60, test: 60}")
TALKING = ("pipeline=self_dialogue", *ASKING[:2])
EDITING = ("pipeline=faithdial_edit", *ASKING)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ((*ASKING, "pipeline=induced", "pipeline.kinds=[]"), "kinds"),
        (("pipeline=rag", *ASKING[:2], "pipeline.path=/nowhere"), "/nowhere"),
        ((*ASKING, "pipeline.near_duplicates=2"), "near_duplicates is 2"),
        ((*ASKING, "models=[a/b,c/b]"), "two models have the name b"),
        ((*ASKING, "models={a+b: {model: x}, a-b: {model: y}}"), "two models have the name a-b"),
        ((*ASKING, "pipeline.dataset=faithdail"), "did you mean faithdial"),
        ((*ASKING, "prompts=/nowhere"), "there is no prompt reply"),
        ((*TALKING, "pipeline.min_rounds=9"), "min_rounds is 9"),
        ((*TALKING, "pipeline.topics=/nowhere.jsonl"), "no such file or folder"),
        ((*TALKING, "pipeline.domains=[chitchat]"), "chit-chat"),
        ((*TALKING, "pipeline.rounds=0"), "at most 100"),
        ((*TALKING, "pipeline.detector=/nowhere"), "no such run or folder"),
        ((*EDITING, "pipeline.which=detector"), "which=detector needs pipeline.detector"),
        ((*EDITING, "pipeline.candidates=0"), "at most 100"),
        ((*EDITING, "pipeline.dataset=wow"), "no reply is tagged"),
        (("pipeline=annotate", "pipeline.adjudicate=expert"), "adjudicate=expert needs pipeline.expert"),
        (("pipeline=annotate", "pipeline.only=hallucinated"), "only=hallucinated needs pipeline.systems"),
        (("pipeline=annotate", "pipeline.suggest=predictions"), "suggest=predictions needs pipeline.predictions"),
        (("pipeline=annotate", "pipeline.export=nowhere.json"), "no such file"),
        (("pipeline=agreement", "pipeline.annotations=nowhere"), "no such file"),
        ((*SHARDS, "pipeline.dataset=ragtruth"), "dataset needs a single file"),
        ((*SHARDS, "pipeline.width=0.1"), "width needs pipeline.labels"),
        (("pipeline=estimate", "pipeline.predictions=README.md", "pipeline.columns.id=null"), "the rows of shards"),
    ],
)
def test_wrong_settings_are_explained(given: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=problem) as caught:
        construct_here(*given, f"run_dir={tmp_path / 'run'}")
    assert len(str(caught.value).splitlines()) <= 5


ROW = {KEY: "1", "task": SUMMARY, "corpus": "Yelp"}


@pytest.mark.parametrize(("words", "most"), [(2, "1"), (400, "100"), (4000, "200")])
def test_a_summary_has_a_quarter_of_the_words_and_200_at_most(words: int, most: str) -> None:
    assert prompt_values({**ROW, "source_info": "word " * words}, "keep")["max_words"] == most


def test_a_bad_source_stops_the_run_or_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "source_info.jsonl"
    bad = [{"source_id": "2", "task_type": "QA", "source_info": {"question": "?"}}]
    good = [{"source_id": str(i), "task_type": "Summary", "source_info": "A text."} for i in (1, 3, 4)]
    file.write_text("\n".join(json.dumps(row) for row in (good[0], *bad, *good[1:])))
    with pytest.raises(UserError, match="passages"):
        list(rag_source(str(tmp_path)).read())
    assert [row[KEY] for row in rag_source(str(file), limit=2, on_bad_row="skip").read()] == ["1", "3"]
    with pytest.raises(UserError, match="no file of sources"):
        rag_source(str(tmp_path / "none"))


LONG = "The lighthouse at Marrow Point was built in 1871 from granite that came by ship from the north"


def texts() -> Iterator[TextInSplit]:
    yield TextInSplit("train", "a", LONG)
    yield TextInSplit("train", "b", "Oat bread keeps longer than wheat bread because oats hold more water")
    yield TextInSplit("test", "c", LONG.replace("from the north", "from the south"))
    yield TextInSplit("test", "d", "oat bread keeps longer than wheat bread, because oats hold more water!")
    yield TextInSplit("test", "e", "Something else that no other text contains")


def test_equal_and_nearly_equal_texts_are_counted_apart() -> None:
    found = find_shared_texts(texts, 0.7)
    pairs = found.pop("pairs")
    assert list(found.values()) == [3, 1, 1]
    assert [(pair["train"], pair["held_out"]) for pair in pairs] == [("a", "c")]
    assert list(find_shared_texts(texts, None).values()) == [3, 1, []]
