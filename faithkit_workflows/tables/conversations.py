"""Counts the verdicts of a table by conversation: the first turn without support, and the share of such turns."""

from collections.abc import Mapping
from typing import Any

from data_modules.reading.conversations import CALLS, describe_left_out, parse_calls
from data_modules.reading.rows import ReadReport
from faithkit.pages.page import AgentTurn
from faithkit.records import HALLUCINATED, Example, Prediction


def read_turn(row: Mapping[str, Any]) -> AgentTurn | None:
    """Returns the place of a row of `expand_conversations` in its conversation; None for a row of another table."""
    calls, texts = parse_calls(row.get(CALLS)), [row.get("sources"), row.get("context")]
    has_texts = all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in texts)
    if calls is None or not has_texts or not isinstance(row.get("turn"), int):
        return None
    return AgentTurn(conversation=str(row.get("conversation")), number=row["turn"], sources=row["sources"], calls=calls)


class ConversationCounter:
    """Collects a line for each conversation; rows of other tables are not counted."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def add(self, row: Mapping[str, Any], example: Example | None, prediction: Prediction | None) -> None:
        """Counts the verdict on a turn."""
        turn = None if prediction is None else read_turn(row)
        if prediction is None or turn is None:
            return
        name = turn.conversation
        new = {"conversation": name, "turns": 0, "unsupported": 0, "share": 0.0, "first_unsupported": None}
        line = self.found.setdefault(name, new)
        line["turns"] += 1
        if prediction.label == HALLUCINATED:
            line["unsupported"] += 1
            line["first_unsupported"] = line["first_unsupported"] or turn.number
        line["share"] = line["unsupported"] / line["turns"]

    def describe(self, report: ReadReport) -> list[str]:
        """Describes the conversations, and what of them was not judged."""
        if not self.found:
            return []
        wrong = [line for line in self.found.values() if line["unsupported"]]
        lines = [f"{len(wrong):,} of {len(self.found):,} conversations have a turn called hallucinated"]
        if wrong:
            worst = max(wrong, key=lambda line: line["unsupported"])
            lines[0] += f"; most in {worst['conversation']}: {worst['unsupported']} of {worst['turns']} turns"
            lines[0] += f", the first is turn {worst['first_unsupported']}"
        lines[0] += " (conversations.jsonl)"
        return lines + describe_left_out(report)
