"""Self-dialogues from topics to DiaHalu's layout: both roles, edits by people, kills, and what a user gets wrong."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_modules.datasets.diahalu import DiaHalu
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl
from tests.faithkit.inference.server import ChatServer
from tests.faithkit_workflows.pipelines.serving import construct_here, fill_sheet, manifest, resume, sheet, steps
from tests.running import asking
from tests.tiny import write_critic

USER, FIRST, SECOND = "user", "first", "second"
SHEET = "turns_to_edit.csv"
WORDS = (
    "amber birch copper delta ember fjord garnet harbour island juniper kettle lantern meadow nickel orchard pebble "
    "quarry ribbon saddle timber umbrella violet walnut yarrow zephyr basket candle daisy eagle forest"
).split()


def say(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
    """Replies depending on all turns before, and on nothing else."""
    number = sum(sum(map(ord, message["content"])) for message in messages)
    drawn = [WORDS[(number * (place + 3) + place * place) % len(WORDS)] for place in range(6)]
    return f"The {' '.join(drawn)} was in the {number}th of them."


def server(**options: Any) -> ChatServer:
    return ChatServer(**{"answer": say, "models": (USER, FIRST, SECOND), **options})


def given(served: ChatServer, folder: Path, *more: str) -> list[str]:
    size = ["pipeline.rounds=3", "pipeline.min_rounds=2", "limit=4", f"models=[{FIRST}]", f"run_dir={folder}"]
    asked = asking(served.url, "engine.max_retries=1", model=USER, cache=folder.parent / "replies.sqlite")
    return ["pipeline=self_dialogue", *asked, *size, *more]


def dialogues(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in read_jsonl(folder / "benchmark" / "DiaHalu.jsonl")}


def edit(folder: Path, *edits: tuple[str, int, str]) -> None:
    """Writes edits into the table, as a person does."""
    rows, wanted = sheet(folder / SHEET), {(key, str(number)): text for key, number, text in edits}
    for row in rows:
        row["edit"] = wanted.get((row["dialogue"], row["round"]), "")
    fill_sheet(folder / SHEET, rows, delimiter=";")


def turns(row: dict[str, Any]) -> list[str]:
    return [line.partition(": ")[2] for line in row["text"].split("\n")]


def test_two_roles_talk_and_the_loader_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server() as served:
        construct_here(*given(served, tmp_path / "run", f"models=[{FIRST},{SECOND}]"))
    found = dialogues(tmp_path / "run")
    assert len(found) == 8 and list(found)[:2] == [f"knowledge:0@{FIRST}", f"knowledge:0@{SECOND}"]
    for row in found.values():
        marks = [line.partition(":")[0] for line in row["text"].split("\n")]
        assert marks == ["A1", "B1", "A2", "B2", "A3", "B3"] and row["label"] == ""
    assert len({row["domain"] for row in found.values()}) == 4
    examples = list(read_examples(DiaHalu(path=str(tmp_path / "run")), None, ReadReport()))
    assert len(examples) == 8 and {example.label for example in examples} == {None}
    assert {example.meta["model"] for example in examples} == {FIRST, SECOND}
    # A opens a topic once for both; each B has a separate system prompt, and A's names one.
    asked = Counter(body["model"] for body in served.asked)
    # Both B say the same here, so that A is asked once for what follows.
    assert asked == {USER: 12, FIRST: 12, SECOND: 12}
    chats = [[m["role"] for m in body["messages"]] for body in served.asked if body["model"] == FIRST]
    assert ["system", *["user", "assistant"] * 2, "user"] in chats and {chat[0] for chat in chats} == {"system"}
    assert "self-dialogues" in capsys.readouterr().out


def test_a_critics_verdicts_are_separate_from_the_empty_labels_of_people(tmp_path: Path) -> None:
    critic, run = write_critic(tmp_path / "critic", "LABEL_0", "LABEL_1"), tmp_path / "run"
    with server() as served:
        construct_here(*given(served, run))
        talked = len(served.asked)
        resume(run, f"pipeline.detector={critic}", "labels={0: faithful, 1: hallucinated}")
        assert len(served.asked) == talked, "no turn is asked for again"
    found = dialogues(run)
    for row in found.values():
        assert row["labelled_by"] == f"detector {critic}" and row["label"] == "" and 0 <= row["model_score"] <= 1
        assert row["model_label"] == int(row["model_score"] >= 0.5)
    whole = read_examples(DiaHalu(path=str(run), labelled_by="model"), None, ReadReport())
    assert [e.label == "hallucinated" for e in whole] == [bool(row["model_label"]) for row in found.values()]


def test_an_edited_dialogue_is_regenerated_from_the_edit_and_nothing_else_changes(tmp_path: Path) -> None:
    folder, key = tmp_path / "run", f"task:0@{FIRST}"
    with server() as served:
        construct_here(*given(served, folder, "engine.cache=null"))
        before, files = dialogues(folder), {path: path.read_bytes() for path in (folder / "steps").iterdir()}
        listed = sheet(folder / SHEET)
        assert {row["domain"] for row in listed} == {"knowledge", "task"} and len(listed) == 3 * 2
        edit(folder, (key, 2, "Could I have two rooms?"), (key, 3, "Never mind."))
        asked = len(served.asked)
        resume(folder)
        assert len(served.asked) - asked == 3  # B2, A3, B3
        resume(folder)
        assert len(served.asked) - asked == 3
    after = dialogues(folder)
    assert turns(after[key])[:3] == [*turns(before[key])[:2], "Could I have two rooms?"]
    assert not set(turns(after[key])[3:]) & set(turns(before[key])[3:]) and len(turns(after[key])) == 6
    assert {name: row for name, row in after.items() if name != key} == {n: r for n, r in before.items() if n != key}
    assert after[key] | {"text": ""} == before[key] | {"text": ""}
    assert all(path.read_bytes() == content for path, content in files.items())
    assert [row["text"] for row in sheet(folder / SHEET) if row["dialogue"] == key][1] == "Could I have two rooms?"
    kept = list(read_jsonl(folder / "edits" / "01" / "edits.jsonl"))
    assert {row["text"] for row in kept} == {"Could I have two rooms?", "Never mind."}


@pytest.mark.slow
def test_a_dialogue_that_fails_behind_an_edit_can_be_edited_once_more(tmp_path: Path) -> None:
    folder, key = tmp_path / "run", f"task:0@{FIRST}"

    def answer(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
        return "..." if messages[-1]["content"] == "Say nothing." else say(messages, seed, sample)

    with server(answer=answer) as served:
        construct_here(*given(served, folder))
        edit(folder, (key, 2, "Say nothing."))
        resume(folder)
        assert key not in dialogues(folder) and manifest(folder)["result"]["left out: empty"] == 1
        listed = [row for row in sheet(folder / SHEET) if row["dialogue"] == key]
        assert [row["signs"] for row in listed] == ["", "the dialogue failed behind it: empty"]
        edit(folder, (key, 2, "Say something."))
        resume(folder)
    assert turns(dialogues(folder)[key])[2] == "Say something." and len(turns(dialogues(folder)[key])) == 6


def test_dialogues_that_fail_are_counted_by_reason_and_can_be_retried(tmp_path: Path) -> None:
    refuses = [True]

    def answer(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
        system = messages[0]["content"]
        if "ice float" in system and "assistant that answers" in system and refuses[0]:
            return "I'm sorry, I cannot answer that."
        if "You are Ben" in system:
            return "It is so. " * 30
        return say(messages, seed, sample)

    with server(answer=answer) as served:
        construct_here(*given(served, tmp_path / "run"))
        result = manifest(tmp_path / "run")["result"]
        assert result["left out: refusal"] == 1 and result["left out: repeats itself"] == 1
        assert result["dialogues"] == 2 and result["of all rounds"] == 2
        assert [row["ID"] for row in dialogues(tmp_path / "run").values()] == [2, 3]
        refuses[0] = False
        resume(tmp_path / "run", "retry_failed=true", "pipeline.temperature=0.1")
    assert [row["ID"] for row in dialogues(tmp_path / "run").values()] == [1, 2, 3]
    assert {step["state"] for step in steps(tmp_path / "run").values()} == {"done"}


def test_an_edit_without_its_round_is_refused_and_the_table_stays(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with server() as served:
        construct_here(*given(served, folder, "limit=2"))
        path = folder / SHEET
        broken = path.read_text().replace(f"task:0@{FIRST},2,", f"task:0@{FIRST},two,").replace('"",', "")
        lines = [f"{line},Hello there" if ",two," in line else line for line in broken.splitlines()]
        path.write_text("\n".join(line.replace(",,Hello", ",Hello") for line in lines))
        with pytest.raises(UserError, match="round is 'two'"):
            resume(folder)
        assert "Hello there" in path.read_text()
