"""DECODE (Nie et al. 2021): does the last utterance of a dialogue contradict an earlier one of its speaker?

Official files: http://parl.ai/downloads/decode/decode_v0.1.zip, JSON lines {record_id, conversation_id,
turns: [{turn_id, agent_id, text}], is_contradiction, aggregated_contradiction_indices}.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.reading import SEEKER, WIZARD, BadRow, Patterns, ReadReport, Row, Source, identifier, reading
from faithkit.errors import shorten
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Turn

ADDRESS = "http://parl.ai/downloads/decode/decode_v0.1.zip"
FILES = {
    "train": ["train.jsonl"],
    "validation": ["dev.jsonl"],
    "test": ["test.jsonl"],
    # Dialogues with bots; test dialogues with two turns added (a2t), and without the contradicted turns (rct).
    "human_bot": ["human-bot.jsonl"],
    "a2t": ["a2t.jsonl"],
    "rct": ["rct.jsonl"],
}
LAYOUTS = {"official": ("record_id", "turns", "is_contradiction")}
LABELS = {"true": HALLUCINATED, "false": FAITHFUL}
CONTRADICTED = "aggregated_contradiction_indices"
TAGS = {HALLUCINATED: "contradiction", FAITHFUL: "non-contradiction"}


@dataclass(frozen=True, kw_only=True)
class Decode(Source):
    """The last utterance as response, against its speaker's earlier ones as knowledge.

    The history is every earlier turn; in it the last utterance's speaker is the wizard. Records cut from one
    conversation share a group.

    Args:
        path: Folder or file.
        knowledge: `speaker` joins the speaker's earlier utterances, `dialogue` all earlier ones.
        official: Makes the pairs of FaithDial's release, for comparison, whatever `knowledge` says. A contradiction
            is compared with each utterance that is marked (the last mark is the response itself); any other response
            with the last utterance but two, or in a shorter dialogue the last but one, of either speaker.
    """

    name: ClassVar[str] = "decode"
    embedded_layout: ClassVar[str | None] = "decode"
    official_files: ClassVar[Sequence[Patterns]] = (FILES,)
    address: ClassVar[str] = ADDRESS
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {
        "knowledge": ("speaker", "dialogue"),
        "official": (True, False),
    }
    knowledge: str = "speaker"
    official: bool = False

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUTS)
        turns: list[tuple[str, str]] = []
        for place, values in enumerate(row.items("turns")):
            with reading(f"turn {place}"):
                turn = row.inside(values)
                if turn.values.get("agent_id") is None:
                    raise BadRow("field 'agent_id' is missing")
                turns.append((identifier(turn, "agent_id"), turn.text("text", empty_ok=True).strip()))
        if not turns:
            raise BadRow("field 'turns' is empty")
        label = row.choice("is_contradiction", LABELS)
        *earlier, (agent, response) = turns
        # What the last utterance is set against, by what it adds to the record's id.
        knowledge: dict[str, str] = {}
        if self.official and label == HALLUCINATED:
            marked = _contradicted(row)[:-1]
            if outside := [index for index in marked if not 0 <= index < len(turns)]:
                raise BadRow(f"field {CONTRADICTED!r} names turn {outside[0]}, and there are {len(turns)}")
            knowledge = {f"-{number}": turns[index][1] for number, index in enumerate(marked, 1)}
        elif self.official and earlier:
            knowledge = {"": turns[-3 if len(turns) > 3 else -2][1]}
        elif not self.official:
            texts = [text for who, text in earlier if text and (self.knowledge == "dialogue" or who == agent)]
            knowledge = {"": " ".join(texts)} if texts else {}
        if not knowledge:
            report.count("dropped: no earlier utterance to contradict")
            return
        if not response:
            raise BadRow("the last turn is empty")
        record = row.text("record_id")
        conversation = identifier(row, "conversation_id") if row.values.get("conversation_id") else record
        for suffix, text in knowledge.items():
            yield Example(
                id=record + suffix,
                source=self.name,
                split=split,
                group=conversation.split("#")[0],  # "<conversation>#truncated#4": cuts of one belong together
                knowledge=text,
                history=tuple(Turn(speaker=WIZARD if who == agent else SEEKER, text=text) for who, text in earlier),
                response=response,
                label=label,
                tags=(TAGS[label],),
                meta={"contradicted": [index for index in _contradicted(row) if index != len(turns) - 1]},
            )


def _contradicted(row: Row) -> list[int]:
    indices = row.items(CONTRADICTED) if row.values.get(CONTRADICTED) is not None else []
    for index in indices:
        if not isinstance(index, int) or isinstance(index, bool):
            raise BadRow(f"field {CONTRADICTED!r} must hold whole numbers, got {shorten(index)}")
    return indices
