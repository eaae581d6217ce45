"""DiaHalu (Chen et al. 2024): dialogues of two language models, judged as a whole for hallucinations.

Official files: https://github.com/ECNU-ICALK/DiaHalu and https://github.com/141forever/DiaHalu, workbooks of {ID,
Dialogue, Label, Hallucination Type, Domain, Explaination, Source, Which LLM}, and JSON lines of {ID, text, label,
index, domain, explaination, source, Which LLM}: 748 dialogues of ChatGPT in the first version, and 355 of GPT-4 more in
the second. `text` holds the turns, `A1: ...` and `B1: ...`; `index` is a text such as `[[6, "non-factual"]]`, by round.
There are no splits, and no knowledge.

The label is about the whole dialogue, as the paper's detectors read it. So the dialogue is the response: whatever reads
a response reads all of what is judged, and no detector has to know where the hallucination is.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, NamedTuple

from data_modules.reading import (
    ANY,
    SEEKER,
    WIZARD,
    BadRow,
    File,
    Names,
    ReadReport,
    Row,
    Source,
    find_files,
    identifier,
)
from faithkit.errors import UserError, shorten
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Turn

TYPES = ("non-factual", "incoherence", "irrelevance", "overreliance", "reasoning error")
EXPLANATIONS = ("explaination", "explanation")  # the files' spelling first
_TURN = re.compile(r"^[ \t]*([AB])[ \t]*(\d{1,4})[ \t]*[:：]", re.MULTILINE)
_ITEM = re.compile(r"[\"']?\s*[AB]?\s*(\d{1,4})\s*[\"']?\s*,\s*[\"']?\s*([A-Za-z][A-Za-z _-]*)")
_NUMBER = re.compile(r"\s*[AB]?\s*(\d{1,4})\s*")
_LETTERS = re.compile(r"[^a-z]")
_BY_LETTERS = {_LETTERS.sub("", name): name for name in TYPES}


class SpokenTurn(NamedTuple):
    """One turn: its speaker (A or B), round and text."""

    who: str
    round: int
    text: str


class Place(NamedTuple):
    """A round with a hallucination of a type; `spelt` is the type as the file has it."""

    round: int
    type: str
    spelt: str


def read_turns(row: Row, report: ReadReport) -> list[SpokenTurn]:
    """Returns the turns of a dialogue in the order of its text."""
    text = row.text("text")
    marks = list(_TURN.finditer(text))
    if not marks or text[: marks[0].start()].strip():
        raise BadRow(f"field 'text' must begin with a turn, as A1: ..., got {shorten(text)}")
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    pairs = zip(marks, ends, strict=True)
    turns = [SpokenTurn(mark[1], int(mark[2]), text[mark.end() : end].strip()) for mark, end in pairs]
    wanted = [("AB"[place % 2], place // 2 + 1) for place in range(len(turns))]
    if [(turn.who, turn.round) for turn in turns] != wanted:
        report.count("turns missing, repeated or out of order: kept as they are")
    return turns


def read_places(row: Row, turns: Sequence[SpokenTurn], report: ReadReport) -> list[Place]:
    """Returns the places that `index` names, by round."""
    rounds, places = {turn.round for turn in turns}, []
    given: Any = row.values.get("index")
    items: Any = given
    if isinstance(given, str):
        try:
            items = json.loads(given) if given.strip() else []
        except (ValueError, RecursionError) as error:
            items = [[int(number), spelt.strip()] for number, spelt in _ITEM.findall(given)]
            if not items:
                raise _bad_index(given) from error
            report.count("repaired: an index that is not JSON")
    if items is not None and not isinstance(items, list):
        raise _bad_index(given)
    if items and len(items) == 2 and not isinstance(items[0], list):
        report.count("repaired: an index of one place, not in a list")
        items = [items]
    for item in items or ():
        if not (isinstance(item, list) and len(item) == 2 and isinstance(item[1], str)):
            raise _bad_index(given)
        number, spelt = item
        if isinstance(number, str) and (as_text := _NUMBER.fullmatch(number)):
            report.count("repaired: a turn's number given as text")
            number = int(as_text[1])
        if not isinstance(number, int) or isinstance(number, bool):
            raise _bad_index(number)
        letters = _LETTERS.sub("", spelt.lower())
        if letters not in _BY_LETTERS:
            near = get_close_matches(letters, _BY_LETTERS, 1, cutoff=0.75)
            if not near:
                raise BadRow(f"field 'index' has the type {shorten(spelt)}; known: {', '.join(TYPES)}")
            report.count("repaired: a misspelt type")
            letters = near[0]
        elif spelt.lower() != _BY_LETTERS[letters]:
            report.count("repaired: a misspelt type")
        name = _BY_LETTERS[letters]
        if number in rounds:
            places.append(Place(number, name, spelt))
        else:
            report.count("repaired: a place without such a turn, left out")
    return sorted(places, key=lambda place: place.round)


def _bad_index(value: object) -> BadRow:
    return BadRow(f"field 'index' must be a list of [turn, type], got {shorten(value)}")


def read_explanations(row: Row, report: ReadReport) -> list[str]:
    """Returns the annotators' explanations, as a rule one for each place."""
    name = next((name for name in EXPLANATIONS if row.values.get(name) is not None), EXPLANATIONS[0])
    value: Any = row.values.get(name)
    if isinstance(value, str):
        text = row.text(name, empty_ok=True).strip()
        try:
            value = json.loads(text, strict=False) if text else []
        except (ValueError, RecursionError):
            report.count("repaired: an explanation that is not JSON")
            value = [text.removeprefix('["').removesuffix('"]')]
    values = [] if value is None else value if isinstance(value, list) else [value]
    inner = row.inside({name: [text if isinstance(text, str) else str(text) for text in values]})
    return [text for text in inner.texts(name) if text.strip()]


ADDRESS = "https://github.com/141forever/DiaHalu"
ALL = "all"  # the one split
FILES = [f"{name}*{suffix}" for name in ("DiaHalu", "diahalu", "Diahalu") for suffix in (".jsonl", ".csv", ".xlsx")]
LAYOUTS = {
    "JSON lines": ("ID", "text", "label", "index", "domain"),
    "workbook": ("Dialogue", "Label", "Hallucination Type", "Domain"),
}
# The workbooks' columns by the names of the JSON lines.
COLUMNS = {"text": "Dialogue", "label": "Label", "index": "Hallucination Type", "domain": "Domain", "source": "Source"}
COLUMNS |= {"explaination": "Explaination"}
CHATGPT, GPT4 = MODELS = ("ChatGPT3.5", "GPT4")  # the first wrote all of the first version, which does not name it
UNLABELLED = "unlabelled"
# The official files label every dialogue; those that were just built have an empty label until they are judged.
LABELS = {"1": HALLUCINATED, "0": FAITHFUL, "": UNLABELLED, "none": UNLABELLED}
KNOWLEDGE, TASK, CHAT, REASONING = DOMAINS = ("knowledge", "task", "chit-chat", "reasoning")
DOMAIN_WORDS = {"knowledge": KNOWLEDGE, "task": TASK, "chit": CHAT, "reason": REASONING}  # as a domain's name has them
# In these A represents a person: its turns were corrected, and only B's judged. In the others both are models.
ONLY_B_JUDGED = (KNOWLEDGE, TASK)
DIALOGUE, TURN = LEVELS = ("dialogue", "turn")
PEOPLE, MODEL = LABELLERS = ("people", "model")
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
        models: Reads the dialogues of ChatGPT3.5 or GPT4: one, a list, or `all`.
        labelled_by: Reads the labels of `people`, or those of a `model` in a file of construct.py. Such examples
            name the model as `labelled_by` in their meta.
    """

    name: ClassVar[str] = "diahalu"
    embedded_layout: ClassVar[str | None] = "diahalu"
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {"level": LEVELS, "labelled_by": LABELLERS}
    option_names: ClassVar[Mapping[str, Sequence[str]]] = {"domains": DOMAINS, "models": MODELS}
    options_for_all_rows: ClassVar[Mapping[str, Any]] = {"domains": ANY, "models": ANY}
    level: str = DIALOGUE
    domains: Names = ANY
    models: Names = ANY
    labelled_by: str = PEOPLE

    def files(self) -> Mapping[str, Sequence[File]]:
        found = find_files(self.path, {ALL: FILES}, address=ADDRESS)
        (files,) = found.values()
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise UserError(f"several versions are here: {names}", place=self.path, hint="set path to one file")
        return {ALL: files}

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        if row.layout(LAYOUTS) == "workbook":
            renamed = {name: row.values.get(column) for name, column in COLUMNS.items()}
            row = row.inside({"Which LLM": CHATGPT, "ID": row.default_id, **row.values, **renamed})
        if self.labelled_by == MODEL:  # in place of people's labels; a row without them has none
            labels = ("label", "index", "explaination", "explanation")
            row = row.inside({**row.values, **{name: row.values.get(f"model_{name}") for name in labels}})
        named = row.text("domain").lower()
        domain = next((domain for word, domain in DOMAIN_WORDS.items() if word in named), None)
        if domain is None:
            raise BadRow(f"field 'domain' is {shorten(row.values['domain'])}; known: {', '.join(DOMAINS)}")
        label = row.choice("label", LABELS)
        model = str(row.values.get("Which LLM") or "unknown")
        if not (self._reads("domains", domain, report) and self._reads("models", model, report)):
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
            if row.values.get(field):  # a table has empty cells
                meta[name] = row.text(field)
        build = _Builder(self.name, split, identifier(row, "ID"), label, meta, turns, places)
        if self.level == DIALOGUE:
            shown: dict[str, Any] = {"places": [[place.round, place.type] for place in places]} if places else {}
            if explanations := read_explanations(row, report):
                shown["explanations"] = explanations
            shown["turn_words"] = [len(turn.text.split()) for turn in turns]
            yield build.example(build.id, row.text("text").strip(), label, places, meta=shown)
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
    turns: Sequence[SpokenTurn]
    places: Sequence[Place]

    def example(self, id: str, response: str, label: str | None, places: Sequence[Place], **values: Any) -> Example:
        types = list(dict.fromkeys(place.type for place in places))
        meta = {**self.meta, **values.pop("meta", {})} | ({"type": types[0], "types": types} if types else {})
        tags = tuple(dict.fromkeys(place.spelt for place in places))
        shared: dict[str, Any] = {"source": self.source, "split": self.split, "group": self.id, "knowledge": ""}
        return Example(id=id, response=response, label=label, tags=tags, meta=meta, **shared, **values)

    def rounds(self, report: ReadReport) -> Iterator[Example]:
        """Yields the rounds with a turn that was judged."""
        judged = "B" if self.meta["domain"] in ONLY_B_JUDGED else "AB"
        found = False  # a hallucination before
        for number in dict.fromkeys(turn.round for turn in self.turns):
            turns = [(place, turn) for place, turn in enumerate(self.turns) if turn.round == number]
            shown = [(place, turn) for place, turn in turns if turn.who in judged and turn.text]
            if not shown:
                report.count("rounds without a judged turn")
                continue
            here = [place for place in self.places if place.round == number]
            label: str | None = HALLUCINATED if here else FAITHFUL
            not_marked = self.label is None or (self.label == HALLUCINATED and not self.places)
            if not here and (found or not_marked):
                report.count("rounds without a label")
                label = None
            found = found or bool(here)
            alone = len({turn.who for _, turn in shown}) == 1
            texts = [turn.text if alone else f"{turn.who}{turn.round}: {turn.text}" for _, turn in shown]
            history = [Turn(speaker=SPEAKERS[turn.who], text=turn.text) for turn in self.turns[: shown[0][0]]]
            id, response = f"{self.id}:{number}", "\n".join(texts)
            yield self.example(id, response, label, here, history=tuple(history), meta={"turn": number})
