"""HalluDial (Luo et al. 2024): responses in FaithDial's dialogues with judgements of what is hallucinated in them.

Official files: https://github.com/FlagOpen/HalluDial, folder `data`: spontaneous/spontaneous_train.json and _test.json,
induced/induced_train.json and _test.json, each a JSON list of {dialogue_id, knowledge, dialogue_history, turn,
response, target}. A target begins with Yes (hallucinated) or No. The training files have exactly 60% of the rows, so
the release seems to divide rows and not dialogues, and most dialogues are then in both files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from data_modules.reading.dataset import Source
from data_modules.reading.dialogues import read_transcript, verdict_of
from data_modules.reading.fields import identifier, whole_number
from data_modules.reading.files import File, find_files
from data_modules.reading.rows import BadRow, ReadReport, Row
from faithkit.errors import UserError, shorten
from faithkit.records import Example

ADDRESS = "https://github.com/FlagOpen/HalluDial"
SPONTANEOUS, INDUCED = SCENARIOS = ("spontaneous", "induced")
BOTH, ALL = "both", "all"
FILES = {
    split: [f"{scenario}{place}*{split}.json" for scenario in SCENARIOS for place in ("/", "")]
    for split in ("train", "test")
}
LAYOUT = {"halludial": ("dialogue_id", "knowledge", "dialogue_history", "turn", "response", "target")}


@dataclass(frozen=True, kw_only=True)
class HalluDial(Source):
    """Responses with their judgements. The group is the dialogue, in both scenarios the same one.

    Several responses answer one turn, so `dialogue_id:turn` repeats: all but the first of those that are read together
    have their row behind it (`3:1@induced_test:7`).

    Args:
        path: A file, or the folder above spontaneous/ and induced/ (or one of these).
        scenario: `spontaneous` (responses of five models, judged by another), `induced` (responses that a model was
            prompted to make wrong, and FaithDial's), or `both`.
        official_split: False reads both files as one split, `all`, to be divided by dialogue.
    """

    name: ClassVar[str] = "halludial"
    ids_repeat: ClassVar[bool] = True
    embedded_layout: ClassVar[str | None] = "halludial"
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {
        "scenario": (*SCENARIOS, BOTH),
        "official_split": (True, False),
    }
    scenario: str = BOTH
    official_split: bool = True

    def files(self) -> Mapping[str, Sequence[File]]:
        found = find_files(self.path, FILES, address=ADDRESS)
        chosen = {
            split: [file for file in files if _scenario_of(str(file)) in (self.scenario, None) or self.scenario == BOTH]
            for split, files in found.items()
        }
        if not any(chosen.values()):
            hint = f"set scenario={BOTH}, or path to the folder above {' and '.join(SCENARIOS)}"
            raise UserError(f"no file of the {self.scenario} scenario is here", place=self.path, hint=hint)
        if not self.official_split:
            return {ALL: [file for files in chosen.values() for file in files]}
        return {split: files for split, files in chosen.items() if files}

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUT)
        scenario = _scenario_of(row.file) or (None if self.scenario == BOTH else self.scenario)
        dialogue, turn, target = identifier(row, "dialogue_id"), whole_number(row, "turn"), row.text("target")
        label = verdict_of(target)
        if label is None:
            raise BadRow(f"field 'target' is {shorten(target)}; known: what begins with Yes or No")
        meta: dict[str, Any] = {"turn": turn} | ({"scenario": scenario} if scenario else {})
        yield Example(
            id=f"{dialogue}:{turn}",
            source=self.name,
            split=split,
            group=dialogue,
            knowledge=row.text("knowledge"),
            history=read_transcript(row, "dialogue_history"),
            response=row.text("response"),
            label=label,
            target=target,
            meta=meta | ({"model": row.text("model")} if row.values.get("model") is not None else {}),
        )


def _scenario_of(file: str) -> str | None:
    """Returns the scenario that a file's name or its folder's names."""
    path = Path(file)
    return next((s for s in SCENARIOS for name in (path.name, path.parent.name) if name.startswith(s)), None)
