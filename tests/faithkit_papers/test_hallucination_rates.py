"""`benchmark=hallucination_rates` and `temperature_sweep`: replies written to whole dialogues, and judged."""

import json
from pathlib import Path

import pytest

from data_modules.embedded.layouts import written_layout
from data_modules.reading.fields import SEEKER, WIZARD
from faithkit.errors import UserError
from faithkit.inference.text import Decoding
from faithkit.records import Example, Turn
from faithkit_papers.hallucination_rates import Dialogues, write_replies
from tests.faithkit.inference.server import MODEL, ChatServer
from tests.running import asking, evaluate_here, values_of

NAME = "hallucination_rates"
Messages = list[dict[str, str]]


@pytest.fixture(scope="module")
def halludial() -> str:
    return written_layout("halludial", {"train": 8, "test": 60})


@pytest.fixture(scope="module")
def judged_rows() -> str:
    return written_layout("audit", {"test": 40})


def turn(group: str, *said: str, id_: str = "") -> Example:
    speakers = (SEEKER, WIZARD)
    history = tuple(Turn(speaker=speakers[place % 2], text=text) for place, text in enumerate(said))
    values = {"id": id_ or f"{group}:{len(said)}", "source": "a", "split": "b", "group": group, "history": history}
    return Example(**values, knowledge=f"k{len(said)}", response="x")


SAID = ("one?", "gold 1", "two?", "gold 2", "three?")
GROUP = [turn("a", *SAID), turn("a", "one?"), turn("a", "one?", id_="another response to it"), turn("a", *SAID[:3])]
DIALOGUES = Dialogues.of([turn("b", "hi"), *GROUP])


def writer(messages: Messages, seed: int | None, sample: int) -> str:
    """Replies with the number of the knowledge, and goes on; every reply behind a first turn is wrong."""
    number = messages[-1]["content"].partition("Knowledge:\nk")[2][:1]
    return f"[Assistant]: {'WRONG' if number != '1' else 'right'} {number} [Human]: Really?"


def judge(messages: Messages, seed: int | None, sample: int) -> str:
    return "Yes" if "WRONG" in messages[-1]["content"].partition("Reply to check:")[2] else "No"


def metrics(folder: Path, name: str = NAME) -> dict[str, float]:
    return values_of(folder, f"test/{name}/")


def test_own_histories_have_the_models_replies_and_the_seekers_turns() -> None:
    with ChatServer(answer=writer) as server:
        from faithkit.inference.openai_engine import OpenAiEngine
        from faithkit.inference.openai_server import ServerOptions

        engine = OpenAiEngine(MODEL, ServerOptions(base_url=server.url))
        replies = write_replies(engine, DIALOGUES, Decoding(), own_history=True)
        asked = {content.partition("Knowledge:\n")[2][:2]: content for content in server.contents}
    assert list(replies) == ["b:1", "a:1", "a:3", "a:5"] and replies["a:5"] == "WRONG 5"
    assert "[Assistant]: right 1\n[Human]: two?\n[Assistant]: WRONG 3\n[Human]: three?" in asked["k5"]
    assert "gold" not in asked["k5"] and "gold 1" in DIALOGUES.turns[3].history[1].text
    histories = DIALOGUES.with_replies({**replies, "a:3": ""})
    assert [one.text for one in histories[3].history] == ["one?", "right 1", "two?", "gold 2", "three?"]


def options(served: ChatServer, judging: ChatServer, path: str, run: Path) -> list[str]:
    system = f"{{name: openai, model: {MODEL}, base_url: '{served.url}', cache: '{run.parent}/said.sqlite'}}"
    own = [f"benchmark.path={path}", f"benchmark.systems={{small: {system}}}", f"run_dir={run}"]
    return [*own, *asking(judging.url, cache=run.parent / "judged.sqlite")]


def answer_some(messages: Messages, seed: int | None, sample: int) -> str:
    """Wrong where the last turn's text has an even number of letters."""
    return "It is WRONG." if len(messages[-1]["content"].rpartition("[Human]: ")[2]) % 2 else "It is right."


def written(server: ChatServer) -> int:
    """Counts the requests to write: those to judge ask for probabilities, though this server tells none."""
    return sum(not body.get("logprobs") for body in server.asked)


def test_the_rates_are_those_of_what_was_written(halludial: str, tmp_path: Path) -> None:
    with ChatServer(answer=answer_some) as served, ChatServer(answer=judge) as judging:
        evaluate_here(f"benchmark={NAME}", *options(served, judging, halludial, tmp_path / "run"))
        asked = len(served.asked), written(judging)
        evaluate_here(f"benchmark={NAME}", *options(served, judging, halludial, tmp_path / "again"))
        assert (len(served.asked), written(judging)) == asked, "a second run knows every reply"
    found, report = metrics(tmp_path / "run"), (tmp_path / "run" / "report.md").read_text()
    rows = [json.loads(line) for line in (tmp_path / "run" / "responses" / "small-gold.jsonl").read_text().splitlines()]
    wrong = ["WRONG" in row["text"] for row in rows]
    groups = [row["id"].split(":")[0] for row in rows]
    hit = {group for group, one in zip(groups, wrong, strict=True) if one}
    assert found["small/gold/turn_rate"] == pytest.approx(sum(wrong) / len(wrong))
    assert found["small/gold/dialogue_rate"] == pytest.approx(len(hit) / len(set(groups)))
    assert found["difference/small/turn_rate"] == pytest.approx(0)
    assert "self - gold histories" in report and metrics(tmp_path / "again") == found


@pytest.mark.slow
def test_files_of_replies_are_judged_and_corrected_by_labelled_rows(
    halludial: str, judged_rows: str, trained: Path, tmp_path: Path
) -> None:
    with ChatServer(answer=answer_some) as served, ChatServer(answer=judge) as judging:
        evaluate_here(f"benchmark={NAME}", *options(served, judging, halludial, tmp_path / "run"))
    file = tmp_path / "run" / "responses" / "small-gold.jsonl"
    system = f"benchmark.systems={{known: {{gold_predictions: '{file}'}}}}"
    labels = f"benchmark.judge_labels=[{{dataset: audit, path: '{judged_rows}'}}]"
    where = [f"benchmark.path={halludial}", f"run_dir={tmp_path / 'files'}", f"checkpoint={trained}"]
    evaluate_here(f"benchmark={NAME}", *where, system, labels)
    found = metrics(tmp_path / "files")
    assert 0 <= found["known/gold/turn_rate"] <= found["known/gold/dialogue_rate"] <= 1
    assert "known/self/turn_rate" not in found and "judge/recall" in found
    short = tmp_path / "short.jsonl"
    short.write_text(file.read_text().splitlines()[0] + "\n")
    with pytest.raises(UserError, match="turns have no reply"):
        evaluate_here(f"benchmark={NAME}", *where[:1], *where[2:], system.replace(str(file), str(short)))


def test_a_sweep_asks_at_each_temperature_and_plots(halludial: str, tmp_path: Path) -> None:
    with ChatServer(answer=answer_some) as served, ChatServer(answer=judge) as judging:
        own = ["benchmark.temperatures=[0,0.5]", "benchmark.histories=[gold]", "benchmark.num_rows=3"]
        evaluate_here("benchmark=temperature_sweep", *options(served, judging, halludial, tmp_path / "run"), *own)
        at = {body.get("temperature") for body in served.asked}
    assert at == {0, 0.5}
    found = metrics(tmp_path / "run", "temperature_sweep")
    assert {"small/gold/temperature_0/turn_rate", "small/gold/temperature_0.5/dialogue_rate"} <= found.keys()
    assert (tmp_path / "run" / "temperature.png").stat().st_size > 1000
    assert (tmp_path / "run" / "responses" / "small-gold-temperature_0.5.jsonl").exists()
