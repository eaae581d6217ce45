"""Agent conversations: answers of an assistant with tools, half of them with one planted fault, written for faithkit.

The file is part of the package, data_modules/agent_conversations/ (README.md there is the datasheet): JSON lines with
id, setting, fault, pair, label, spans, and OpenAI's messages. The last answer is judged by the results of the tools;
the two conversations of a pair differ in it alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_modules.reading import BadRow, Patterns, ReadReport, Row, Source, read_spans
from data_modules.reading.conversations import read_conversation
from faithkit.records import CALLS, FAITHFUL, HALLUCINATED, Example, Turn, join_passages

FOLDER = Path(__file__).parents[1] / "agent_conversations"
LAYOUT = {"agent conversations": ("id", "setting", "fault", "pair", "label", "spans", "messages")}
FAULTS = (
    *("wrong value", "merged rows", "invented field", "stale value", "claim of an earlier answer"),
    *("action not done", "failed call as success"),
)


@dataclass(frozen=True, kw_only=True)
class Agents(Source):
    """The last answers of conversations with tools, with marked spans and the type of their fault.

    Args:
        path: A folder with conversations.jsonl, or a file; by default that of the package.
    """

    name: ClassVar[str] = "agents"
    official_files: ClassVar[Sequence[Patterns]] = ({"test": ["conversations.jsonl"]},)
    address: ClassVar[str] = "data_modules/agent_conversations"
    path: str = str(FOLDER)

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUT)
        turns = read_conversation(row, report)
        if not turns:
            raise BadRow("the conversation has no answer that is judged")
        response, label = turns[-1]["answer"], row.choice("label", {name: name for name in (FAITHFUL, HALLUCINATED)})
        fault = row.choice("fault", {name: name for name in FAULTS}) if label == HALLUCINATED else ""
        found = read_spans(row, "spans", response, "label", {}, fault, self.name) if fault else ()
        yield Example(
            id=row.text("id"),
            source=self.name,
            split=split,
            group=row.text("pair"),
            knowledge=join_passages(turns[-1]["context"]),
            history=(Turn(speaker="user", text=turns[-1]["question"]),),
            response=response,
            label=label,
            spans=tuple(span for span, _ in found),
            meta={"setting": row.text("setting"), CALLS: turns[-1][CALLS]} | ({"fault": fault} if fault else {}),
        )
