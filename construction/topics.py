"""Reads or generates the topics of self-dialogues in DiaHalu's four domains (Chen et al. 2024, section 4.1).

Files are JSON lines, JSON lists or CSV, of one of the layouts in `LAYOUTS`; a folder means all such files in it. A row
has the domain, the source as DiaHalu's files name it, and a text for the system prompt of each side.

`embedded` means the topics of embedded_topics.jsonl: 56 of each domain, the questions with common misconceptions and
some without a known answer.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from construction.steps import KEY, Row
from data_modules.datasets.diahalu import CHAT, DOMAINS, KNOWLEDGE, REASONING, TASK
from data_modules.reading.rows import READERS, BadRow, ReadReport, read_rows
from data_modules.reading.rows import Row as FileRow
from faithkit.errors import UserError, choice_hint, shorten
from faithkit.files.atomic import hash_files
from faithkit.files.jsonl import read_jsonl
from faithkit.settings.config_files import EMBEDDED

SUFFIXES = (".jsonl", ".json", ".csv")


class Topic(NamedTuple):
    """The topic of a dialogue.

    Args:
        source: As in DiaHalu's field `source`.
        for_a: The text for the user's side.
        for_b: The text for the assistant's side, if its prompt has a field for it.
    """

    domain: str
    source: str
    for_a: str
    for_b: str


def _for_both(domain: str, source: str, text: str) -> Topic:
    return Topic(domain, source, text, text)


def _read_topic(row: FileRow) -> Topic:
    domain = row.text("domain").strip().lower()
    if domain not in DOMAINS:
        raise BadRow(f"field 'domain' is {shorten(domain)}", hint=choice_hint(domain, DOMAINS))
    topic = row.text("topic")
    source = row.text("source", empty_ok=True) or Path(row.file).stem
    return Topic(domain, source, topic, row.text("topic_b", empty_ok=True) or topic)


def _lines(row: FileRow, name: str) -> str:
    """Reads a text, or a list of texts as lines."""
    value = row.values.get(name)
    text = "\n".join(row.texts(name)) if isinstance(value, list) else row.text(name)
    # MultiWOZ marks values in its goals by tags.
    return row.inside({name: re.sub("<[^<>]{1,80}>", "", text)}).text(name)


def _goal(row: FileRow) -> Topic:
    goal = row.values.get("goal")
    inner = row.inside(goal) if isinstance(goal, Mapping) and "message" in goal else row.inside({"message": goal})
    return _for_both(TASK, "MultiWOZ", _lines(inner, "message"))


def _commonsense(row: FileRow) -> Topic:
    question = row.values["question"]
    text = row.inside(question).text("stem") if isinstance(question, Mapping) else row.text("question")
    return _for_both(KNOWLEDGE, "commonsense", text)


class Layout(NamedTuple):
    """A layout of topic files: the fields of its rows, and how a topic is read from them."""

    fields: tuple[str, ...]
    read: Callable[[FileRow], Topic]


# A row has the first layout of which it has all fields.
LAYOUTS: Mapping[str, Layout] = {
    "topics": Layout(("domain", "topic"), _read_topic),
    "personas": Layout(
        ("persona_a", "persona_b"),
        lambda row: Topic(CHAT, "persona", _lines(row, "persona_a"), _lines(row, "persona_b")),
    ),
    "Synthetic-Persona-Chat": Layout(
        ("user 1 personas", "user 2 personas"),
        lambda row: Topic(CHAT, "persona", row.text("user 1 personas"), row.text("user 2 personas")),
    ),
    "goals": Layout(("goal",), _goal),
    "TruthfulQA": Layout(
        ("Question", "Best Answer"), lambda row: _for_both(KNOWLEDGE, "TruthfulQA", row.text("Question"))
    ),
    "MathQA": Layout(("Problem", "options"), lambda row: _for_both(REASONING, "MathQA", row.text("Problem"))),
    "CommonsenseQA": Layout(("question", "answerKey"), _commonsense),
    "CWQ": Layout(("question", "compositionality_type"), lambda row: _for_both(KNOWLEDGE, "CWQ", row.text("question"))),
    "GSM8K": Layout(("question", "answer"), lambda row: _for_both(REASONING, "GSM8K", row.text("question"))),
}


def topic_files(paths: Sequence[str]) -> list[Path]:
    """Finds the files that paths name.

    Raises:
        UserError: A path does not exist, or is a folder without topic files.
    """
    found: list[Path] = []
    for path in paths:
        place = Path(path).expanduser()
        files = sorted(one for one in place.iterdir() if one.suffix in SUFFIXES) if place.is_dir() else [place]
        if not place.exists() or (place.is_file() and place.suffix not in READERS):
            problem = "no such file or folder" if not place.exists() else "this is not a topic file"
            raise UserError(problem, place=path, hint=f"pipeline.topics={EMBEDDED}, or a {', '.join(SUFFIXES)} file")
        if not files:
            raise UserError("no topic file is here", place=path, hint=f"put a {', '.join(SUFFIXES)} file there")
        found += files
    return found


@dataclass(kw_only=True)
class Topics:
    """Reads the topics of some domains, alternating between the domains.

    Args:
        paths: Files and folders, or `embedded`.
        all_needed: Refuses a domain without topics.
        open_with_topic: The first turn is the topic itself, if it is a question or a problem.
        limit: Reads only the first topics.
    """

    paths: Sequence[str]
    domains: Sequence[str]
    all_needed: bool = False
    open_with_topic: bool = False
    limit: int | None = None
    on_bad_row: str = "stop"

    def settings(self) -> dict[str, Any]:
        """Collects what the rows depend on."""
        names = [] if EMBEDDED in self.paths else [str(file) for file in topic_files(self.paths)]
        files = list(hash_files(Path(), names).values()) or EMBEDDED
        options = {"domains": list(self.domains), "open_with_topic": self.open_with_topic, "limit": self.limit}
        return {"files": files, **options}

    def rows(self) -> Iterator[Row]:
        """Reads the rows, one for each dialogue.

        Raises:
            UserError: A domain that is needed has no topic, or all have none.
        """
        self.report = ReadReport(self.on_bad_row)
        by_domain: dict[str, list[Row]] = {domain: [] for domain in self.domains}
        for key, topic in self._topics():
            if topic.domain in by_domain:
                is_opened = self.open_with_topic and topic.domain in (
                    KNOWLEDGE,
                    REASONING,
                )  # which may be the first turn
                texts = {"for_a": topic.for_a.strip(), "for_b": topic.for_b.strip()}
                turns = [" ".join(topic.for_a.split())] if is_opened else []
                row = {KEY: key, "domain": topic.domain, "source": topic.source, **texts, "turns": turns}
                by_domain[topic.domain].append(row)
        missing = [domain for domain, rows in by_domain.items() if not rows]
        if missing and (self.all_needed or len(missing) == len(by_domain)):
            problem = f"no topic of the domain {missing[0]} is here" if self.all_needed else "no topic is here"
            hint = f"leave it out of domains, or pipeline.topics={EMBEDDED}"
            raise UserError(problem, place=", ".join(self.paths), hint=hint)
        yield from islice(filter(None, chain.from_iterable(zip_longest(*by_domain.values()))), self.limit)

    def _topics(self) -> Iterator[tuple[str, Topic]]:
        if EMBEDDED in self.paths:
            numbers: Counter[str] = Counter()
            for line in read_jsonl(Path(__file__).with_name("embedded_topics.jsonl")):
                domain = line["domain"]
                key = f"{domain}:{numbers[domain]}"
                yield key, Topic(domain, EMBEDDED, line["for_a"], line.get("for_b", line["for_a"]))
                numbers[domain] += 1
            return
        fields = {name: layout.fields for name, layout in LAYOUTS.items()}
        for file in topic_files(self.paths):
            for row in read_rows(file, self.report):
                with self.report.rejecting(row):
                    # MultiWOZ's original file is one object with all dialogues by name.
                    goals = [name for name, one in row.values.items() if isinstance(one, Mapping) and "goal" in one]
                    if goals and "goal" not in row.values:
                        yield from ((name, _goal(row.inside(row.values[name]))) for name in goals)
                    else:
                        yield row.default_id, LAYOUTS[row.layout(fields)].read(row)
