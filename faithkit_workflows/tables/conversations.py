"""Counts the verdicts of a table by conversation: the first turn without support, and the share of such turns."""

from collections.abc import Mapping
from typing import Any

from data_modules.reading.conversations import CALLS
from data_modules.reading.rows import ReadReport
from faithkit.records import HALLUCINATED, Example, Prediction


class ConversationCounter:
    """Collects a line for each conversation; rows of other tables are not counted."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def add(self, row: Mapping[str, Any], example: Example | None, prediction: Prediction | None) -> None:
        """Counts the verdict on a turn."""
        if prediction is None or CALLS not in row or "turn" not in row:
            return
        name = row["conversation"]
        new = {"conversation": name, "turns": 0, "unsupported": 0, "share": 0.0, "first_unsupported": None}
        line = self.found.setdefault(name, new)
        line["turns"] += 1
        if prediction.label == HALLUCINATED:
            line["unsupported"] += 1
            line["first_unsupported"] = line["first_unsupported"] or row["turn"]
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
        counts = {outcome: number for outcome, number in report.counts.items() if not outcome.startswith("rejected")}
        return lines + [f"{number:,} {outcome}" for outcome, number in counts.items()]
