"""DiaHalu (Chen et al. 2024): dialogues of two language models, judged as a whole for hallucinations.

Official files: https://github.com/ECNU-ICALK/DiaHalu, tables of {ID, text, label, index, domain, explaination, source,
Which LLM} (as JSON lines or CSV): 748 dialogues in the first version, 1,103 in the second. `text` holds the turns,
`A1: ...` and `B1: ...`; `index` is a text such as `[[6, "non-factual"]]`, by round. There are no splits, and no
knowledge.

The label is about the whole dialogue, as the paper's detectors read it. So the dialogue is the response: whatever reads
a response reads all of what is judged, and no detector has to know where the hallucination stands.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from data_modules.datasets.diahalu_rows import Place, Said, read_explanations, read_places, read_turns
from data_modules.datasets.span_checks import identifier
from data_modules.reading.dataset import Source
from data_modules.reading.fields import ANY, SEEKER, WIZARD, Names, chosen
from data_modules.reading.files import File, find_files
from data_modules.reading.rows import BadRow, ReadReport, Row
from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Turn

ADDRESS = "https://github.com/ECNU-ICALK/DiaHalu"
ALL = "all"  # the one split
FILES = [f"{name}*{suffix}" for name in ("DiaHalu", "diahalu", "Diahalu") for suffix in (".jsonl", ".csv")]
LAYOUT = {"diahalu": ("ID", "text", "label", "index", "domain")}
UNLABELLED = "unlabelled"
# The official files label every dialogue; those that were just built have an empty label until somebody judged them.
LABELS = {"1": HALLUCINATED, "0": FAITHFUL, "": UNLABELLED, "none": UNLABELLED}
KNOWLEDGE, TASK, CHAT, REASONING = DOMAINS = ("knowledge", "task", "chit-chat", "reasoning")
DOMAIN_WORDS = {"knowledge": KNOWLEDGE, "task": TASK, "chit": CHAT, "reason": REASONING}  # as a domain's name has them
# In these A stands for a person: its turns were corrected, and only B's judged. In the others both are models.
ONLY_B_JUDGED = (KNOWLEDGE, TASK)
DIALOGUE, TURN = LEVELS = ("dialogue", "turn")
PEOPLE, MODEL = LABELLERS = ("people", "model")
OF_MODEL = "model_"  # begins the fields in which construct.py has a model's labels
SPEAKERS = {"A": SEEKER, "B": WIZARD}


@dataclass(frozen=True, kw_only=True)
class DiaHalu(Source):
    """Whole dialogues, or their rounds, without any knowledge. The group is the dialogue.

    Args:
        path: A file, or the folder with it.
        level: `dialogue`: the response is the whole dialogue. `turn`: every round by itself, after those before it;
            where both speakers were judged the response has both their turns. Annotators marked the first
            hallucination, as a rule: later rounds that they did not mark have no label.
        domains: knowledge, task, chit-chat, reasoning: one, a list, or `all`.
        labelled_by: Whose labels are read: `people`, or those of a `model` in a file of construct.py. Such examples
            name the model as `labelled_by` in their meta.
    """

    name: ClassVar[str] = "diahalu"
    embedded_layout: ClassVar[str | None] = "diahalu"
    options_for_all_rows: ClassVar[Mapping[str, Any]] = {"domains": ANY}
    level: str = DIALOGUE
    domains: Names = ANY
    labelled_by: str = PEOPLE

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise UserError(f"level is {self.level!r}", hint=f"use {' or '.join(LEVELS)}")
        if not chosen(self.domains, "domains") or chosen(self.domains) - {*DOMAINS, ANY}:
            raise UserError(f"domains is {self.domains!r}", hint=f"use {ANY}, {', '.join(DOMAINS)}, or a list of them")
        if self.labelled_by not in LABELLERS:
            raise UserError(f"labelled_by is {self.labelled_by!r}", hint=f"use {' or '.join(LABELLERS)}")

    def files(self) -> Mapping[str, Sequence[File]]:
        found = find_files(self.path, {ALL: FILES}, address=ADDRESS)
        (files,) = found.values()
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise UserError(f"several versions are here: {names}", place=self.path, hint="set path to one file")
        return {ALL: files}

    def layout(self) -> Mapping[str, Any]:
        return {**super().layout(), "domains": sorted(chosen(self.domains))}

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        row.layout(LAYOUT)
        if self.labelled_by == MODEL:
            row = _with_model_labels(row)
        domain, label = _domain(row), row.choice("label", LABELS)
        if not chosen(self.domains) & {ANY, domain}:
            report.count(f"dropped: domain {domain}")
            return
        turns = read_turns(row, report)
        places = read_places(row, turns, report)
        if label == UNLABELLED:
            report.count("dialogues without a label")
            label, places = None, []
        elif bool(places) != (label == HALLUCINATED) and (places or self.labelled_by == PEOPLE):
            report.count(f"index and label disagree, the label counts: {label}")
            places = places if label == HALLUCINATED else []
        meta: dict[str, Any] = {"domain": domain, "rounds": len({turn.round for turn in turns})}
        fields = {"topic_source": "source", "model": "Which LLM"}
        if self.labelled_by == MODEL and label is not None:
            report.count("dialogues labelled by a model")
            fields["labelled_by"] = "labelled_by"
        for name, field in fields.items():
            if row.values.get(field) is not None:
                meta[name] = row.text(field)
        build = _Builder(self.name, split, identifier(row, "ID"), label, meta, turns, places)
        if self.level == DIALOGUE:
            yield build.dialogue(row.text("text").strip(), read_explanations(row, report))
        else:
            yield from build.rounds(report)


@dataclass(frozen=True)
class _Builder:
    """Makes the examples of one dialogue."""

    source: str
    split: str
    id: str
    label: str | None
    meta: Mapping[str, Any]
    turns: Sequence[Said]
    places: Sequence[Place]

    def _example(self, id: str, response: str, label: str | None, places: Sequence[Place], **values: Any) -> Example:
        types = list(dict.fromkeys(place.type for place in places))
        meta = {**self.meta, **values.pop("meta", {})} | ({"type": types[0], "types": types} if types else {})
        tags = tuple(dict.fromkeys(place.spelt for place in places))
        shared: dict[str, Any] = {"source": self.source, "split": self.split, "group": self.id, "knowledge": ""}
        return Example(id=id, response=response, label=label, tags=tags, meta=meta, **shared, **values)

    def dialogue(self, text: str, explanations: list[str]) -> Example:
        meta: dict[str, Any] = {"places": [[place.round, place.type] for place in self.places]} if self.places else {}
        if explanations:
            meta["explanations"] = explanations
        return self._example(self.id, text, self.label, self.places, meta=meta)

    def rounds(self, report: ReadReport) -> Iterator[Example]:
        """The rounds in which somebody who was judged said something."""
        judged = "B" if self.meta["domain"] in ONLY_B_JUDGED else "AB"
        found = False  # a hallucination before
        for number in dict.fromkeys(turn.round for turn in self.turns):
            said = [(place, turn) for place, turn in enumerate(self.turns) if turn.round == number]
            shown = [(place, turn) for place, turn in said if turn.who in judged and turn.text]
            if not shown:
                report.count("rounds without a judged turn")
                continue
            here = [place for place in self.places if place.round == number]
            label: str | None = HALLUCINATED if here else FAITHFUL
            nobody_looked = self.label is None or (self.label == HALLUCINATED and not self.places)
            if not here and (found or nobody_looked):
                report.count("rounds without a label")
                label = None
            found = found or bool(here)
            alone = len({turn.who for _, turn in shown}) == 1
            texts = [turn.text if alone else f"{turn.who}{turn.round}: {turn.text}" for _, turn in shown]
            history = [Turn(speaker=SPEAKERS[turn.who], text=turn.text) for turn in self.turns[: shown[0][0]]]
            id, response = f"{self.id}:{number}", "\n".join(texts)
            yield self._example(id, response, label, here, history=tuple(history), meta={"turn": number})


def _with_model_labels(row: Row) -> Row:
    """Puts what a model said in the place of what people said; a row without it has no label."""
    fields = ("label", "index", "explaination", "explanation")
    return row.inside({**row.values, **{name: row.values.get(f"{OF_MODEL}{name}") for name in fields}})


def _domain(row: Row) -> str:
    name = row.text("domain").lower()
    found = next((domain for word, domain in DOMAIN_WORDS.items() if word in name), None)
    if found is None:
        raise BadRow(f"field 'domain' is {shorten(row.values['domain'])}; known: {', '.join(DOMAINS)}")
    return found
