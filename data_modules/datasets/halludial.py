"""HalluDial (Luo et al. 2024): responses in FaithDial's dialogues with judgements of what is hallucinated in them.

Official files: https://github.com/FlagOpen/HalluDial, folder `data`, or FlagEval/HalluDial on the hub:
spontaneous/spontaneous_train.json and _test.json, induced/induced_train.json and _test.json, each a JSON list of
{dialogue_id, knowledge, dialogue_history, turn, response, target}. A target begins with Yes (hallucinated) or No. The
training files have exactly 60% of the rows, so the release seems to divide rows and not dialogues, and most dialogues
are then in both files.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from data_modules.datasets.wow import WizardOfWikipedia
from data_modules.reading import (
    HUB,
    BadRow,
    File,
    HubSplit,
    ReadReport,
    Records,
    Row,
    Source,
    find_files,
    identifier,
    log_missing,
    read_examples,
    rows_of,
    text_group,
    whole_number,
)
from data_modules.reading.dialogues import read_transcript, verdict_of
from faithkit.errors import UserError, shorten
from faithkit.records import Example

ADDRESS = "https://github.com/FlagOpen/HalluDial"
HUB_NAME = "FlagEval/HalluDial"  # each scenario is a part of it
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
        path: A file, the folder above spontaneous/ and induced/ (or one of these), or `hub`.
        scenario: `spontaneous` (responses of five models, judged by another), `induced` (responses that a model was
            prompted to make wrong, and FaithDial's), or `both`.
        official_split: False reads both files as one split, `all`, to be divided by dialogue.
        topics_path: Wizard of Wikipedia's official files, from which the dialogues come: they name topics. A row gets
            the `topic` of the dialogue that begins as its history does, or else of its knowledge.
    """

    name: ClassVar[str] = "halludial"
    ids_repeat: ClassVar[bool] = True
    embedded_layout: ClassVar[str | None] = "halludial"
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {
        "scenario": (*SCENARIOS, BOTH),
        "official_split": (True, False),
    }
    embedded_options: ClassVar[Mapping[str, str]] = {"topics_path": "wow"}
    scenario: str = BOTH
    official_split: bool = True
    topics_path: str | None = None

    def files(self) -> Mapping[str, Sequence[File]]:
        wow = [file for files in self._wow.files().values() for file in files] if self._wow else []
        return {split: [*files, *wow] for split, files in self._judged_files().items()}

    @cached_property
    def _wow(self) -> WizardOfWikipedia | None:
        return WizardOfWikipedia(path=self.topics_path) if self.topics_path else None

    def _judged_files(self) -> Mapping[str, Sequence[File]]:
        found: Mapping[str, Sequence[File]]
        if self.path == HUB:
            found = {
                split: [HubSplit(dataset=HUB_NAME, config=name, split=split, address=ADDRESS) for name in SCENARIOS]
                for split in FILES
            }
        else:
            found = files = find_files(self.path, FILES, address=ADDRESS)
            if self.scenario == BOTH and Path(self.path).name not in SCENARIOS:
                names = tuple(f"{scenario}_{split}.json" for scenario in SCENARIOS for split in FILES)
                log_missing(self.path, names, tuple(file for split in files.values() for file in split), ADDRESS)
        chosen = {
            split: [file for file in files if _scenario_of(str(file)) in (self.scenario, None) or self.scenario == BOTH]
            for split, files in found.items()
        }
        if not any(chosen.values()):
            hint = f"set scenario={BOTH}, or path to the folder above {' and '.join(SCENARIOS)}; files: {ADDRESS}"
            raise UserError(f"no file of the {self.scenario} scenario is here", place=self.path, hint=hint)
        if not self.official_split:
            return {ALL: [file for files in chosen.values() for file in files]}
        return {split: files for split, files in chosen.items() if files}

    @cached_property
    def _topics(self) -> Mapping[str, str]:
        """The topics by the hash of a first turn, or of knowledge, that only dialogues of one topic have."""
        assert self._wow is not None
        found: dict[str, set[str]] = defaultdict(set)
        for split in self._wow.split_names():
            for example in read_examples(self._wow, split, ReadReport()):
                opening = example.history[0].text if example.history else example.response
                if topic := example.meta.get("topic"):
                    found[text_group(opening)].add(topic)
                    found[text_group(example.knowledge)].add(topic)
        return {key: topic for key, (topic, *others) in found.items() if not others}

    def read_split(self, split: str, report: ReadReport) -> Records:
        for file in self._judged_files()[split]:
            for row in rows_of(file, report):
                for example in self.read_row(row, split, report):
                    yield example, row

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUT)
        scenario = _scenario_of(row.file) or (None if self.scenario == BOTH else self.scenario)
        dialogue, turn, target = identifier(row, "dialogue_id"), whole_number(row, "turn"), row.text("target")
        label = verdict_of(target)
        if label is None:
            raise BadRow(f"field 'target' is {shorten(target)}; known: what begins with Yes or No")
        meta: dict[str, Any] = {"turn": turn} | ({"scenario": scenario} if scenario else {})
        knowledge, history = row.text("knowledge"), read_transcript(row, "dialogue_history")
        if self.topics_path:
            keys = [text_group(turn.text) for turn in history[:1]] + [text_group(knowledge)]
            if topic := next((self._topics[key] for key in keys if key in self._topics), None):
                meta["topic"] = topic
            else:
                report.count("rows without a topic in topics_path")
        yield Example(
            id=f"{dialogue}:{turn}",
            source=self.name,
            split=split,
            group=dialogue,
            knowledge=knowledge,
            history=history,
            response=row.text("response"),
            label=label,
            target=target,
            meta=meta | ({"model": row.text("model")} if row.values.get("model") is not None else {}),
        )


def _scenario_of(file: str) -> str | None:
    """Returns the scenario that a file's name or its folder's names."""
    names = re.split(r"[/\\:]", file)[:-3:-1]
    return next((scenario for scenario in SCENARIOS for name in names if name.startswith(scenario)), None)
