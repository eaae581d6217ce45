"""Wizard of Wikipedia (Dinan et al. 2019): wizard turns with the sentence that the wizard checked, not judged.

Official files: https://parl.ai/projects/wizard_of_wikipedia, a JSON list of dialogues {chosen_topic, dialog: [{speaker,
text, checked_sentence}]}. FaithDial's layout ({dialog_idx, utterances}) is read too; the report counts which it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from data_modules.datasets.faithdial import wizard_turns
from data_modules.reading import SEEKER, WIZARD, BadRow, Patterns, ReadReport, Row, Source, reading
from faithkit.errors import shorten
from faithkit.records import Example, Turn

ADDRESS = "https://parl.ai/projects/wizard_of_wikipedia"
FILES = {
    "train": ["train.json", "wow_train.json"],
    "validation": ["valid_random_split.json", "wow_valid.json"],
    "test": ["test_random_split.json", "wow_test.json"],
    "validation_topic": ["valid_topic_split.json"],  # topics that training has not seen
    "test_topic": ["test_topic_split.json"],
}
LAYOUTS = {"ParlAI": ("dialog",), "FaithDial": ("utterances",)}


@dataclass(frozen=True, kw_only=True)
class WizardOfWikipedia(Source):
    """Wizard turns with their history, without labels.

    ParlAI's dialogues have no ids: theirs are `<file stem>:<row>:<turn>`, turns counted over both speakers. A wizard
    turn without a checked sentence is dropped.

    Args:
        path: Folder or file, of either layout.
    """

    name: ClassVar[str] = "wow"
    embedded_layout: ClassVar[str | None] = "wow"
    official_files: ClassVar[Sequence[Patterns]] = (FILES,)
    address: ClassVar[str] = ADDRESS

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        layout = row.layout(LAYOUTS)
        report.count(f"layout: {layout}")
        for judged in wizard_turns(row, report) if layout == "FaithDial" else ():
            if judged.original is not None or judged.tags is not None:
                problem = f"utterance {judged.index} has an original_response or BEGIN tags: this is FaithDial, not WoW"
                raise BadRow(problem, hint="use data=faithdial")
            yield Example(
                id=judged.id,
                source=self.name,
                split=split,
                group=judged.dialogue,
                knowledge=judged.knowledge,
                history=judged.history,
                response=judged.response,
                reference=judged.response,
            )
        if layout == "FaithDial":
            return
        history: list[Turn] = []
        for position, values in enumerate(row.items("dialog")):
            with reading(f"turn {position}"):  # a bad one rejects the others too: they would lack their history
                turn = row.inside(values)
                wizard = "wizard" in turn.text("speaker").lower()
                checked = (turn.values.get("checked_sentence") or {}) if wizard else {}
                if not isinstance(checked, Mapping):
                    raise BadRow(f"field 'checked_sentence' must be an object, got {shorten(checked)}")
                sentence = [text for text in checked.values() if text != "no_passages_used"][:1]
                knowledge = turn.inside({"checked_sentence": sentence[0]}).text("checked_sentence") if sentence else ""
                text = turn.text("text", empty_ok=not knowledge)
            if wizard and knowledge:
                yield Example(
                    id=f"{row.default_id}:{position}",
                    source=self.name,
                    split=split,
                    group=row.default_id,
                    knowledge=knowledge,
                    history=tuple(history),
                    response=text,
                    reference=text,
                    meta={"topic": row.values.get("chosen_topic")},
                )
            elif wizard:
                report.count("dropped: no knowledge used")
            history.append(Turn(speaker=WIZARD if wizard else SEEKER, text=text))
