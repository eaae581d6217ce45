"""The agent conversations of the package: complete, in pairs, with marks at the fault."""

import json
from collections import Counter
from typing import Any

from data_modules.datasets.agents import FAULTS, FOLDER, Agents
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.records import FAITHFUL, HALLUCINATED


def test_the_two_conversations_of_a_pair_differ_in_the_last_answer_alone() -> None:
    pairs: dict[str, list[Any]] = {}
    for line in (FOLDER / "conversations.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        pairs.setdefault(row["pair"], []).append(row)
    assert len(pairs) == 60
    for faithful, wrong in pairs.values():
        assert (faithful["label"], wrong["label"]) == (FAITHFUL, HALLUCINATED)
        assert faithful["messages"][:-1] == wrong["messages"][:-1] != []
        assert faithful["messages"][-1] != wrong["messages"][-1]


def test_each_fault_is_marked_and_the_datasheet_counts_them() -> None:
    report = ReadReport()
    examples = list(read_examples(Agents(), "test", report))
    assert len(examples) == 120 and not report.rejects
    counts = Counter(example.meta["fault"] for example in examples if example.label == HALLUCINATED)
    assert set(counts) == set(FAULTS) and sum(counts.values()) == 60
    for example in examples:
        assert bool(example.spans) == (example.label == HALLUCINATED)
        assert example.history and all(
            not span.text and span.end <= len(example.response) for span in example.spans or ()
        )
    datasheet = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"({counts[fault]})" in datasheet for fault in FAULTS)
