"""Topic files of each layout, and embedded topics."""

import json
from pathlib import Path
from typing import Any

import pytest

from construction.dialogues.topics import Topics, topic_files
from data_modules.datasets.diahalu import DOMAINS
from faithkit.errors import UserError

HEADER = "Type,Category,Question,Best Answer,Correct Answers,Incorrect Answers,Source\n"
FILES: dict[str, Any] = {
    "TruthfulQA.csv": HEADER + "x,y,Can fish fly?,Some glide,a,b,c\n",
    "gsm8k.jsonl": {"question": "What is 2 + 2?", "answer": "4\n#### 4"},
    "csqa.jsonl": {"id": "1", "answerKey": "A", "question": {"stem": "Where is a book?", "choices": []}},
    "csqa_hub.jsonl": {"id": "1", "question": "Where is a pen?", "choices": {}, "answerKey": "A"},
    "cwq.json": [{"ID": "1", "question": "Who led it?", "compositionality_type": "composition"}],
    "mathqa.json": [{"Problem": "1 + 1?", "Rationale": "", "options": "a ) 2", "correct": "a"}],
    "goals.jsonl": {"goal": ["You want a <span class='x'>cheap</span> room.", "Book it."]},
    "data.json": {"PMUL1.json": {"goal": {"message": ["Find a train."]}, "log": []}},
    "personas.jsonl": {"persona_a": ["I bake.", "I sing."], "persona_b": "I teach."},
    "spc.csv": "user 1 personas,user 2 personas\nI ski.,I swim.\n",
    "topics.jsonl": {"domain": "task", "topic": "Repair my bicycle.", "source": "GPT4"},
}
WANTED = {
    "TruthfulQA.csv": ("knowledge", "TruthfulQA", "Can fish fly?"),
    "gsm8k.jsonl": ("reasoning", "GSM8K", "What is 2 + 2?"),
    "csqa.jsonl": ("knowledge", "commonsense", "Where is a book?"),
    "csqa_hub.jsonl": ("knowledge", "commonsense", "Where is a pen?"),
    "cwq.json": ("knowledge", "CWQ", "Who led it?"),
    "mathqa.json": ("reasoning", "MathQA", "1 + 1?"),
    "goals.jsonl": ("task", "MultiWOZ", "You want a cheap room.\nBook it."),
    "data.json": ("task", "MultiWOZ", "Find a train."),
    "personas.jsonl": ("chit-chat", "persona", "I bake.\nI sing."),
    "spc.csv": ("chit-chat", "persona", "I ski."),
    "topics.jsonl": ("task", "GPT4", "Repair my bicycle."),
}


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def topics(*paths: Path | str, **options: Any) -> Topics:
    return Topics(**{"paths": [str(path) for path in paths], "domains": DOMAINS, **options})


@pytest.mark.parametrize("name", FILES)
def test_each_layout_is_read(name: str, tmp_path: Path) -> None:
    (row,) = topics(write(tmp_path / name, FILES[name])).rows()
    assert (row["domain"], row["source"], row["for_a"]) == WANTED[name] and row["turns"] == []


def test_domains_take_turns_so_that_any_number_is_a_mixture(tmp_path: Path) -> None:
    for name in ("TruthfulQA.csv", "gsm8k.jsonl", "topics.jsonl"):
        write(tmp_path / name, FILES[name])
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
    path.write_text(
        '{"domain": "tasks", "topic": "x"}\n{"domain": "task", "topic": " "}\n{"domain": "task", "topic": "y"}\n'
    )
    with pytest.raises(UserError, match="field 'domain' is 'tasks'") as caught:
        list(topics(path).rows())
    assert "topics.jsonl, line 1" in str(caught.value) and "did you mean task?" in str(caught.value)
    skipping = topics(path, on_bad_row="skip")
    assert [row["for_a"] for row in skipping.rows()] == ["y"]
    assert skipping.report.counts["rejected: bad row"] == 2


def test_files_and_domains_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        topic_files([str(tmp_path / "none.jsonl")])
    with pytest.raises(UserError, match="no topic file"):
        topic_files([str(tmp_path)])
    path = write(tmp_path / "topics.jsonl", FILES["topics.jsonl"])
    with pytest.raises(UserError, match="no topic of the domain knowledge"):
        list(topics(path, domains=["knowledge"], all_needed=True).rows())
