"""`benchmark=hallucination_rates` and `temperature_sweep`: replies to dialogues, judged, and their report."""

import json
from pathlib import Path

import numpy as np
import pytest

from data_modules.embedded.layouts import written_layout
from data_modules.reading.fields import SEEKER, WIZARD
from faithkit.errors import UserError
from faithkit.inference.text import Decoding
from faithkit.metrics.judge_error import JudgeError
from faithkit.pages.page_tables import render_text
from faithkit.records import Example, Turn
from faithkit.statistics.bootstrap import Groups
from faithkit_papers.hallucination_rates import (
    Case,
    Dialogues,
    Turns,
    evaluate_rates,
    plot_temperatures,
    rates_report,
    write_replies,
)
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


GROUPS = [str(number // 3) for number in range(60)]


def turns(called: list[float], replied: list[bool] | None = None) -> Turns:
    said = np.array([True] * len(called) if replied is None else replied)
    return Turns(called=np.array(called, float), replied=said, groups=Groups.of(GROUPS[: len(called)]))


def test_turns_without_a_verdict_or_a_reply_are_left_out_counted_and_told() -> None:
    some = turns([1, *[float("nan")] * 5, 0, 0, 0], [True, True] + [False] * 4 + [True] * 3)
    found = evaluate_rates(some).score().metrics
    assert found["turn_rate"].value == pytest.approx(1 / 4) and found["turn_rate"].n == 4
    assert found["dialogue_rate"].value == pytest.approx(1 / 2) and found["dialogue_rate"].n == 2
    assert found["unparsed_rate"].value == pytest.approx(1 / 5)
    assert found["no_reply_rate"].value == pytest.approx(4 / 9)
    case = {Case(system="s", history="gold"): some}
    notes = rates_report(case, GROUPS[:9], title="t", judged_by="j", num_resamples=20)[1].notes
    assert "s/gold: 4 of 9 turns got no reply: left out" in notes
    assert "s/gold: 1 of 5 replies got no readable verdict" in notes


def test_the_report_corrects_compares_histories_and_cites() -> None:
    gold = turns([float(number % 2) for number in range(60)])
    own = turns([float(number % 4 == 0) for number in range(60)])
    labels = [number % 2 for number in range(80)]
    called = [label if number % 10 else 1 - label for number, label in enumerate(labels)]
    error = JudgeError.of_rows(labels, called, [str(number) for number in range(80)], "80 rows")
    cases = {Case(system="small", history="gold"): gold, Case(system="small", history="self"): own}
    more = {"error": error, "dataset": "halludial", "num_resamples": 50}
    _, report = rates_report(cases, GROUPS, title="t", judged_by="j", **more)
    found = report.metrics
    recall, alarms = (error.rates(np.ones((1, 80)))[i][0] for i in (0, 1))
    assert found["small/gold/turn_rate_corrected"].value == pytest.approx((0.5 - alarms) / (recall - alarms))
    assert found["difference/small/turn_rate"].value == pytest.approx(-0.25)
    assert found["p_value/small/turn_rate"].value < 0.05
    differences = {name for name in found if name.startswith("difference")}
    assert differences == {f"difference/small/{kind}_rate" for kind in ("turn", "dialogue")}
    shown = render_text(*report.tables)
    assert "GPT-4o-2024-05-13 *" in shown and "2.8" in shown and "self - gold histories" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_temperatures_have_a_column_and_a_plot(tmp_path: Path) -> None:
    cases = {
        Case(system="a$b", history=history, temperature=at): turns([float(n % (4 - at) == 0) for n in range(60)])
        for history in ("gold", "self")
        for at in (0.0, 1.0, 2.0)
    }
    rates, report = rates_report(cases, GROUPS, title="t", judged_by="j", num_resamples=20)
    assert "a$b/gold/temperature_2/turn_rate" in report.metrics
    assert report.metrics["difference/a$b/temperature_1/turn_rate"].value == 0
    path = plot_temperatures(rates, tmp_path / "t.png")
    assert path.read_bytes().startswith(b"\x89PNG")
