"""Topic files of each layout, and embedded topics."""

import json
from pathlib import Path
from typing import Any

import pytest

from construction.topics import Topics, topic_files
from data_modules.datasets.diahalu import DOMAINS
from faithkit.errors import UserError

HEADER = "Type,Category,Question,Best Answer,Correct Answers,Incorrect Answers,Source\n"
# The content of each file, and what is read of it: "domain, source, topic".
FILES: dict[str, tuple[Any, str]] = {
    "TruthfulQA.csv": (HEADER + "x,y,Can fish fly?,Some glide,a,b,c\n", "knowledge, TruthfulQA, Can fish fly?"),
    "gsm8k.jsonl": ({"question": "What is 2 + 2?", "answer": "4\n#### 4"}, "reasoning, GSM8K, What is 2 + 2?"),
    "csqa.jsonl": ({"question": {"stem": "It?", "choices": []}, "answerKey": "A"}, "knowledge, commonsense, It?"),
    "hub.jsonl": ({"question": "A pen?", "choices": {}, "answerKey": "A"}, "knowledge, commonsense, A pen?"),
    "cwq.json": ([{"ID": "1", "question": "Who?", "compositionality_type": "composition"}], "knowledge, CWQ, Who?"),
    "mathqa.json": ([{"Problem": "1 + 1?", "options": "a ) 2", "correct": "a"}], "reasoning, MathQA, 1 + 1?"),
    "goals.jsonl": ({"goal": ["A <span class='x'>cheap</span> room.", "Now."]}, "task, MultiWOZ, A cheap room.\nNow."),
    "data.json": ({"PMUL1.json": {"goal": {"message": ["Find a train."]}, "log": []}}, "task, MultiWOZ, Find a train."),
    "personas.jsonl": ({"persona_a": ["I bake.", "I sing."], "persona_b": "?"}, "chit-chat, persona, I bake.\nI sing."),
    "spc.csv": ("user 1 personas,user 2 personas\nI ski.,I swim.\n", "chit-chat, persona, I ski."),
    "topics.jsonl": ({"domain": "task", "topic": "Repair it.", "source": "GPT4"}, "task, GPT4, Repair it."),
}


def write(path: Path) -> Path:
    content, _ = FILES[path.name]
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def topics(*paths: Path | str, **options: Any) -> Topics:
    return Topics(**{"paths": [str(path) for path in paths], "domains": DOMAINS, **options})


@pytest.mark.parametrize("name", FILES)
def test_each_layout_is_read(name: str, tmp_path: Path) -> None:
    (row,) = topics(write(tmp_path / name)).rows()
    assert f"{row['domain']}, {row['source']}, {row['for_a']}" == FILES[name][1] and row["turns"] == []


def test_domains_take_turns_so_that_any_number_is_a_mixture(tmp_path: Path) -> None:
    for name in ("TruthfulQA.csv", "gsm8k.jsonl", "topics.jsonl"):
        write(tmp_path / name)
    found = [row["domain"] for row in topics(tmp_path).rows()]
    assert found == ["knowledge", "task", "reasoning"]
    assert [row["domain"] for row in topics(tmp_path, limit=2).rows()] == ["knowledge", "task"]


def test_embedded_topics_are_many_and_the_same_each_time() -> None:
    first, again = list(topics("embedded").rows()), list(topics("embedded").rows())
    assert first == again and len(first) == 224 and len({row["key"] for row in first}) == 224
    assert len({(row["for_a"], row["for_b"]) for row in first}) == 224
    opened = list(topics("embedded", open_with_topic=True, limit=4).rows())
    assert [bool(row["turns"]) for row in opened] == [True, False, False, True]


def test_bad_topics_are_named_by_file_and_line_or_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "topics.jsonl"
    rows = [{"domain": "tasks", "topic": "x"}, {"domain": "task", "topic": " "}, {"domain": "task", "topic": "y"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match="field 'domain' is 'tasks'") as caught:
        list(topics(path).rows())
    assert "topics.jsonl, line 1" in str(caught.value) and "did you mean task?" in str(caught.value)
    skipping = topics(path, on_bad_row="skip")
    assert [row["for_a"] for row in skipping.rows()] == ["y"]
    assert skipping.report.counts["rejected: bad row"] == 2


def test_files_and_domains_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no topic file"):
        topic_files([str(tmp_path)])
    with pytest.raises(UserError, match="no topic of the domain knowledge"):
        list(topics(write(tmp_path / "topics.jsonl"), domains=["knowledge"], all_needed=True).rows())
