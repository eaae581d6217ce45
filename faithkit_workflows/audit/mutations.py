"""What an audit asks about: documents, labelled rows, and copies of sentences that are changed and lose their support.

The idea is that of mutation testing: a detector that calls a changed copy hallucinated, and its unchanged original
not, has found the change. The place of each change is known to the character.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from data_modules.datasets.pair_columns import AUTO, field_of
from data_modules.reading.formats import read_sections
from data_modules.weak.dropped import drop_support
from data_modules.weak.synthetic_pairs import NUMBERS, other_number
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, UNTYPED, Example, Span
from faithkit.words import sentence_places, unicode_content_words, unicode_words, word_set
from faithkit_workflows.answering.retrieval import SUFFIXES, split_passages
from faithkit_workflows.audit.target import PASSAGES, passages_of

VERSION = 1  # raised when the same documents give other cases
SOURCE = "audit"
UNCHANGED = "unchanged"
NUMBER, DATE, UNIT, NAMED, NEGATION, QUANTIFIER, RELATION, REMOVED, ADDED = TYPES = (
    *("number", "date", "unit", "name", "negation", "quantifier", "relation"),
    *("removed support", "unsupported addition"),
)
TYPE, ORIGINAL = "type", "original"  # in an example's `meta`
MIN_WORDS, MAX_WORDS = 5, 45  # of a sentence
NUM_PASSAGES = 3  # of a context
MAX_COPIES = 4  # of one sentence
ENGLISH = word_set("the of and to in is a that for it are was with on as by be this at from or not has")

_SECTIONS = {
    title: [part for line in lines for part in line.split("|")]
    for title, lines in read_sections(Path(__file__).with_name("changes.txt"))
}
UNITS = [line.split() for line in _SECTIONS["units"]]
QUANTIFIERS, RELATIONS = (
    [tuple(pair.split(">")) for pair in _SECTIONS[title]] for title in ("quantifiers", "relations")
)
CLAIMS = _SECTIONS["added"]
MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w])")
_YEAR = re.compile(r"(?<![\w.,])(?:1[5-9]|20)\d\d(?![\w%])(?!,\d| \w*(?:met|gram|lit|euro|dollar|people|pound))")
_MONTH_OR_DAY = re.compile(rf"\b(?:{'|'.join((*MONTHS, *DAYS))})\b")
_NAME = re.compile(r"(?<=[a-z,;)] )[A-Z][a-z][\w'’]*(?: [A-Z][\w'’]*)*(?![\w-])")
_MARKUP = re.compile(r"[`|=<>]|\]\(|https?:")  # such sentences are code, tables or links
_VERB = re.compile(rf"\b(?:{'|'.join(_SECTIONS['verbs'])})(?: ?not)?\b")
_UNIT = re.compile(
    rf"(?<![\w.,])(?:\d[\d,.]*|{'|'.join(NUMBERS)})[ -]"
    rf"({'|'.join(sorted({unit for line in UNITS for unit in line}, key=len, reverse=True))})(s?)\b"
)
_ABBREVIATION = re.compile(r"\b(?:[A-Z]|Dr|Mr|Mrs|Ms|St|No|Nr|vs|etc|e\.g|i\.e|approx|Inc|Ltd)\.$")
Change = tuple[int, int, str]  # replaces text[start:end]
BUILT_IN = "the built-in documents"
SEPARATOR = "\x1e"  # between the passages of a row: no text has it
COLUMNS = {"knowledge": AUTO, "response": AUTO, "label": AUTO, "history": AUTO, "id": None, "group": AUTO}


@dataclass(frozen=True)
class Document:
    """A named text, in passages."""

    name: str
    passages: tuple[str, ...]

    @classmethod
    def of(cls, name: str, text: str) -> "Document":
        """Divides a text; code blocks and headings are left out, and each item of a list is a passage."""
        plain = re.sub(r"(?s)```.*?(?:```|$)|(?m:^#+ [^\n]*$)", "", text)
        plain = re.sub(r"(?m)^\s*(?:[-*>]|\d+\.)\s+", "\n\n", plain)
        return cls(name, tuple(split_passages(plain)))


@dataclass(frozen=True)
class Pool:
    """Names and sentences that changes may bring in; the context decides whether they are supported."""

    names: list[str]
    sentences: list[str]


def change_numbers(text: str, context: str, pool: Pool, rng: random.Random) -> Sequence[Change]:
    found = _find_numbers(text) or list(re.finditer(rf"\b(?:{'|'.join(NUMBERS[1:])})\b", text))
    if not found:
        return []
    chosen = rng.choice(found)
    written = chosen.group()
    if written in NUMBERS:
        return [(*chosen.span(), rng.choice([word for word in NUMBERS[1:] if word != written]))]
    own = {one.group() for one in _NUMBER.finditer(text)}
    near = sorted({one.group() for one in _find_numbers(context)} - own)
    other = rng.choice(near) if near and rng.random() < 0.5 else other_number(written, rng)
    return [(*chosen.span(), other)] if other != written else []


def _find_numbers(text: str) -> list[re.Match[str]]:
    """Finds numbers that are no part of a date."""
    years = {found.span() for found in _YEAR.finditer(text)}
    found = [one for one in _NUMBER.finditer(text) if one.span() not in years]
    return [one for one in found if not _MONTH_OR_DAY.match(text[one.end() :].lstrip())]


def change_dates(text: str, context: str, pool: Pool, rng: random.Random) -> Sequence[Change]:
    found = [*_YEAR.finditer(text), *_MONTH_OR_DAY.finditer(text)]
    if not found:
        return []
    chosen = rng.choice(found)
    names = next((names for names in (MONTHS, DAYS) if chosen.group() in names), None)
    others = names or [one.group() for one in _YEAR.finditer(context)] or [other_number(chosen.group(), rng)]
    others = [one for one in others if one not in text] or ([] if names else [other_number(chosen.group(), rng)])
    return [(*chosen.span(), rng.choice(others))] if others else []


def change_units(text: str, context: str, pool: Pool, rng: random.Random) -> Sequence[Change]:
    found = list(_UNIT.finditer(text))
    if not found:
        return []
    chosen = rng.choice(found)
    line = next(units for units in UNITS if chosen[1] in units)
    other = rng.choice([unit for unit in line if unit != chosen[1]])
    return [(chosen.start(1), chosen.end(1), other)]


def change_names(text: str, context: str, pool: Pool, rng: random.Random) -> Sequence[Change]:
    found = _find_names(text)
    if not found:
        return []
    chosen = rng.choice(found)
    near = [one.group() for one in _find_names(context)]
    for names in (near, pool.names) if rng.random() < 0.5 else (pool.names, near):
        others = sorted({name for name in names if not set(name.split()) & set(text.split())})
        alike = [name for name in others if (" " in name) == (" " in chosen.group())]
        if others:
            return [(*chosen.span(), rng.choice(alike or others))]
    return []


def _find_names(text: str) -> list[re.Match[str]]:
    return [one for one in _NAME.finditer(text) if not _MONTH_OR_DAY.search(one.group())]


def negate(text: str, context: str, pool: Pool, rng: random.Random) -> Sequence[Change]:
    found = _VERB.search(text)
    if not found:
        return []
    if found.group().endswith("not"):
        start = found.start() + len(found.group().removesuffix("not").rstrip())
        return [(start, found.end(), "")]
    return [(found.end(), found.end(), " not")]


def _replace_pair(
    pairs: Sequence[tuple[str, ...]], text: str, context: str, pool: Pool, rng: random.Random
) -> Sequence[Change]:
    fitting = [(found, new) for old, new in pairs if (found := re.search(rf"\b{old}\b", text, re.IGNORECASE))]
    if not fitting:
        return []
    longest = max(len(found.group().split()) for found, _ in fitting)  # `more than` before `more`
    found, new = rng.choice([one for one in fitting if len(one[0].group().split()) == longest])
    return [(*found.span(), new[:1].upper() + new[1:] if found.group()[0].isupper() else new)]


def change_relations(text: str, context: str, pool: Pool, rng: random.Random) -> Sequence[Change]:
    pairs = [
        pair
        for pair in (_find_numbers(text), _find_names(text))
        if len({one.group() for one in pair}) == len(pair) == 2
    ]
    if pairs and rng.random() < 0.5:
        first, second = rng.choice(pairs)
        return [(*first.span(), second.group()), (*second.span(), first.group())]
    return _replace_pair(RELATIONS, text, context, pool, rng)


def add_claim(text: str, context: str, pool: Pool, rng: random.Random) -> Sequence[Change]:
    known = set(unicode_content_words(context))
    end = len(text.rstrip(".!?"))
    if rng.random() < 0.5:
        return [(end, end, rng.choice(CLAIMS))]
    for sentence in rng.sample(pool.sentences, min(8, len(pool.sentences))):
        words = set(unicode_content_words(sentence))
        if len(words & known) <= 0.3 * len(words):
            return [(len(text), len(text), f" {sentence}")]
    return [(end, end, rng.choice(CLAIMS))]


CHANGERS: dict[str, Callable[[str, str, Pool, random.Random], Sequence[Change]]] = {
    NUMBER: change_numbers,
    DATE: change_dates,
    UNIT: change_units,
    NAMED: change_names,
    NEGATION: negate,
    QUANTIFIER: partial(_replace_pair, QUANTIFIERS),
    RELATION: change_relations,
    ADDED: add_claim,
}


def apply_changes(text: str, changes: Sequence[Change]) -> tuple[str, tuple[Span, ...]]:
    """Applies changes in their order; the span of each covers what is new, and of a deletion the words around it."""
    pieces, spans, place, length = [], [], 0, 0
    for start, end, new in changes:
        pieces += [text[place:start], new]
        length += start - place
        spans.append((length, length + len(new), new))
        length += len(new)
        place = end
    changed = "".join([*pieces, text[place:]])
    marked = []
    for start, end, new in spans:
        if not new:
            after = re.compile(r"\s*[\w'’-]+").match(changed, start)
            start, end = changed.rfind(" ", 0, start) + 1, after.end() if after else start
        start += len(changed[start:end]) - len(changed[start:end].lstrip(" ,"))
        marked.append(Span(start=start, end=end, label=UNTYPED))
    return changed, tuple(marked)


def make_cases(
    documents: Sequence[Document], others: Sequence[Document], *, num_cases: int, seed: int = 0
) -> list[Example]:
    """Makes sentences with their context, each followed by its changed copies; every prefix of the list is balanced.

    Args:
        others: Documents whose names and sentences may replace those of a document, besides the other documents.
        num_cases: Changed copies of each type.
    """
    rng, counts = random.Random(f"{VERSION}|{seed}"), Counter[str]()
    queues = []  # the unchanged cases of each document: its sentences, every second one with the sentence behind it
    for document in documents:
        queue = []
        for number, passage in enumerate(document.passages):
            first = max(0, min(number - 1, len(document.passages) - NUM_PASSAGES))
            context = document.passages[first : first + NUM_PASSAGES]
            places = list(_usable_places(passage))
            for place, (start, end) in enumerate(places):
                has_next = place + 1 < len(places) and (number + place) % 2
                base = Example(
                    id=f"{document.name}/{number}.{place}/{UNCHANGED}",
                    source=SOURCE,
                    split="all",
                    group=document.name,
                    knowledge="\n\n".join(context),
                    response=passage[start : places[place + 1][1] if has_next else end],
                    label=FAITHFUL,
                    spans=(),
                    meta={TYPE: UNCHANGED, PASSAGES: context, "first": end - start},
                )
                queue.append(base)
        rng.shuffle(queue)
        queues.append(queue)
    every = [*documents, *others]
    names = {one.group() for document in every for text in document.passages for one in _find_names(text)}
    pool = Pool(sorted(names), [sentence for document in every for sentence in list_sentences(document)])
    cases: list[Example] = []
    for base in (one for each in zip_longest(*queues) for one in each if one is not None):
        wanted = [name for name in TYPES if counts[name] < num_cases]
        if not wanted or len(cases) > 4 * num_cases * len(TYPES):
            break
        copies: list[Example] = []
        for name in sorted(wanted, key=lambda name: counts[name]):
            if len(copies) < MAX_COPIES and (copy := _copy(base, name, pool, rng)) is not None:
                copies.append(copy)
                counts[name] += 1
        cases += [base, *copies] if copies else []
    return cases


def list_sentences(document: Document) -> list[str]:
    """Lists the sentences that cases can be made of."""
    return [passage[start:end] for passage in document.passages for start, end in _usable_places(passage)]


def _usable_places(passage: str) -> Iterator[tuple[int, int]]:
    for start, end in sentence_places(passage):
        text = passage[start:end]
        whole = text[-1] in ".!?" and (text[0].isupper() or text[0].isdigit()) and not _ABBREVIATION.search(text)
        if whole and MIN_WORDS <= len(text.split()) <= MAX_WORDS and "?" not in text and not _MARKUP.search(text):
            yield start, end


def _copy(base: Example, name: str, pool: Pool, rng: random.Random) -> Example | None:
    id_ = f"{base.id.removesuffix(UNCHANGED)}{name}"
    meta: dict[str, Any] = {TYPE: name, ORIGINAL: base.id}
    if name == REMOVED:
        found = next(drop_support(base, rng, 1), None)
        if found is None:
            return None
        passages = tuple(part.strip() for part in found.knowledge.split("\n\n") if part.strip())
        knowledge = "\n\n".join(passages)
        return replace(found, id=id_, knowledge=knowledge, meta={**meta, PASSAGES: passages}) if passages else None
    first, rest = base.response[: base.meta["first"]], base.response[base.meta["first"] :]
    changes = CHANGERS[name](first, base.knowledge, pool, rng)
    text, spans = apply_changes(first, changes)
    if not changes or text == first:
        return None
    meta[PASSAGES] = passages_of(base)
    return replace(base, id=id_, response=text + rest, label=HALLUCINATED, spans=spans, meta=meta)


Item = TypeVar("Item", Example, Document)


@dataclass(slots=True, kw_only=True)
class Material:
    """Documents and rows of an audit.

    Args:
        source: Where the documents are from, for the report.
        others: Documents that irrelevant passages and foreign names are taken from.
        rows: Rows with their labels of people; those without are not among them.
        left_out: How many documents and rows are not used, by reason.
    """

    documents: list[Document]
    source: str
    others: list[Document]
    rows: list[Example] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def read_material(config: Mapping[str, Any]) -> Material:
    """Reads documents and rows; without documents those of the rows are used, without rows the built-in ones.

    Raises:
        UserError: A file cannot be read, or nothing in it can be used.
    """
    left_out: Counter[str] = Counter()
    rows: list[Example] = []
    if config["rows"]:
        from faithkit_workflows.tables.user_table import SPANS, open_user_table

        table = open_user_table(config["rows"], COLUMNS, join=SEPARATOR.join, on_bad_row="skip", without=[SPANS])
        if count := sum(table.report.counts[key] for key in table.report.counts if key.startswith("rejected")):
            left_out["row: cannot be read"] += count
        label = table.found.label if table.found else None
        for values, row in table:
            if row is None:
                continue
            if row.label is None:
                given = str(field_of(values, label) or "").strip() if label else ""
                left_out["row: a label of unknown meaning" if given else "row: no label"] += 1
            rows.append(replace(with_passages(row), id=f"row/{row.id}"))
    if block := config.get("benchmark"):
        from data_modules.build import read_benchmark

        found = read_benchmark({**block, "on_bad_row": "skip"}, seed=config["seed"])
        left_out.update(
            {f"row: {reason}": count for reason, count in found.summary["counts"].items() if "rej" in reason}
        )
        for example in found.examples:
            if not example.knowledge.strip() or not example.response.strip():
                left_out["row: no knowledge or no response"] += 1
                continue
            rows.append(replace(with_passages(example), id=f"row/{example.id}"))
    rows = _sample(rows, config["num_rows"], config["seed"], left_out)
    sections = read_sections(Path(__file__).with_name("documents.txt"))
    built_in = [Document.of(title, "\n".join(lines)) for title, lines in sections]
    if config["documents"]:
        root = Path(config["documents"]).expanduser()
        files = [root] if root.is_file() else sorted(one for one in root.rglob("*") if one.suffix.lower() in SUFFIXES)
        if not files:
            hint = f"a folder with {' or '.join(SUFFIXES)} files"
            raise UserError("documents: no texts are here", place=config["documents"], hint=hint)
        read = []
        for file in files:
            try:
                text = file.read_text(encoding="utf-8-sig")
            except (UnicodeDecodeError, OSError):
                left_out["document: not UTF-8 text, or not readable"] += 1
                continue
            read.append(Document.of(str(file.relative_to(root)) if file != root else file.name, text))
        documents, source = _usable(read, left_out), config["documents"]
    elif rows:
        texts = dict.fromkeys("\n\n".join(row.meta[PASSAGES]) for row in rows)
        named = [Document.of(f"source {number}", text) for number, text in enumerate(texts, start=1)]
        documents, source = _usable(named, left_out), "the sources of the rows"
    else:
        documents, source = built_in, BUILT_IN
    if not documents and not rows:
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in left_out.items())
        hint = "name a folder of .txt or .md files in English"
        raise UserError(f"no document can be used ({reasons})", place=config["documents"], hint=hint)
    documents = _sample(documents, 200, config["seed"], left_out, "document: more than are needed")
    others = built_in if documents is not built_in else []
    labelled = [row for row in rows if row.label is not None]
    return Material(documents=documents, source=source, others=others, rows=labelled, left_out=left_out)


def _usable(documents: Iterable[Document], left_out: Counter[str]) -> list[Document]:
    kept = []
    for document in documents:
        words = unicode_words(" ".join(document.passages))
        if not any(passage.strip() for passage in document.passages):
            left_out["document: empty"] += 1
        elif sum(word in ENGLISH for word in words) < 0.1 * max(len(words), 1):
            left_out["document: not in English"] += 1
        elif not list_sentences(document):
            left_out["document: no whole sentence of 5 to 45 words"] += 1
        else:
            kept.append(document)
    return kept


def with_passages(example: Example) -> Example:
    """Reads the passages of a row whose knowledge was joined by SEPARATOR; a single text has some at empty lines."""
    parts = example.knowledge.split(SEPARATOR)
    passages = parts if len(parts) > 1 else [part for part in parts[0].split("\n\n") if part.strip()]
    return replace(example, knowledge="\n\n".join(passages), meta={**example.meta, PASSAGES: tuple(passages)})


def _sample(
    items: list[Item], size: int, seed: int, left_out: Counter[str], reason: str = "row: more than num_rows"
) -> list[Item]:
    if len(items) <= size:
        return items
    left_out[reason] += len(items) - size
    kept = sorted(random.Random(seed).sample(range(len(items)), size))
    return [items[place] for place in kept]
