"""Reads or generates the topics of self-dialogues in DiaHalu's four domains (Chen et al. 2024, section 4.1).

Files are JSON lines, JSON lists or CSV, of one of the layouts in `LAYOUTS`; a folder means all such files in it. A row
has the domain, the source as DiaHalu's files name it, and a text for the system prompt of each side.

The embedded topics need no file: the same `NUM_TOPICS` for each domain at every call.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from construction.chain.steps import KEY, Row
from data_modules.datasets.diahalu import CHAT, DOMAINS, KNOWLEDGE, REASONING, TASK
from data_modules.reading.rows import READERS, BadRow, ReadReport, read_rows
from data_modules.reading.rows import Row as FileRow
from faithkit.embedded_name import EMBEDDED
from faithkit.errors import UserError, choice_hint, shorten
from faithkit.files.hashes import hash_files

NUM_TOPICS = 56

# Questions, some with common misconceptions or without a known answer.
_QUESTIONS = """
Why does ice float on water?|Do goldfish really forget everything after a few seconds?|Which is the longest river?
Why are there leap years?|Can you see the Great Wall of China from the Moon?|Who painted the first picture ever?
Does sugar make children restless?|Why is the sky blue during the day and red in the evening?|How do bees find home?
Which metal melts in a hand?|Do we use only a tenth of the brain?|Why does bread rise?|How old can a tortoise get?
Does lightning never strike the same place twice?|Who built the first clock?|Why do cats purr?
Which country has the most time zones?|Is a tomato a fruit?|Why do onions make us cry?|How do submarines dive?
Can people sneeze with open eyes?|What did the Romans eat for breakfast?|Why is the sea salty?|Do bulls hate red?
Which planet has the longest day?|How does a refrigerator make things cold?|Why do leaves change colour in autumn?
Was Napoleon really small?|What is inside a black hole?|How many words does English have?|Why do we dream?
Does cold weather give you a cold?|Which bird cannot fly backwards?|How is glass made?|Who invented the zero?
Why do some stones glow?|Can plants hear?|What makes a rainbow round?|How do magnets know where north is?
Do chameleons change colour to hide?|Why does soap clean?|Which is the driest place on Earth?|How are pearls made?
What will be the most spoken language in a hundred years?|Did vikings wear horns?|Why does a boomerang come back?
How do whales sleep?|Is there gold in the sea?|Why do we have two eyes?|Who named the days of the week?
Does water turn the other way round in the south?|How high can a balloon rise?|Why do peppers taste hot?
What was the first animal in space?|How do spiders get a thread across a river?|Can sound travel through space?
"""
QUESTIONS = [question for line in _QUESTIONS.strip().splitlines() for question in line.strip("|").split("|")]
_TASKS = {
    "a table in a restaurant": {
        "food": "Italian|Indian|vegan|Turkish|Thai|seafood",
        "part of town": "the centre|the north|near the station|by the river",
        "price": "cheap|moderate|expensive",
        "people": "2|3|4|7",
        "time": "Friday at 19:00|tonight at 20:30|Sunday at 12:15",
    },
    "a room in a hotel": {
        "stars": "2|3|4",
        "nights": "1|3|5",
        "people": "1|2|4",
        "needs": "parking|wireless internet|breakfast|a quiet room",
        "arrival": "Monday|Thursday|next Saturday",
    },
    "a train": {
        "from": "Cambridge|Norwich|Ely",
        "to": "London|Peterborough|Birmingham",
        "day": "Tuesday|Saturday",
        "leave after": "8:15|13:30|17:00",
        "tickets": "1|2|5",
    },
    "a taxi": {"from": "the museum|the hotel|the cinema", "to": "the airport|the station|the hospital"}
    | {"arrive by": "9:45|18:30|22:00", "luggage": "none|three cases|a bicycle"},
    "a museum to visit": {"kind": "art|trains|science|toys", "entrance": "free|at most 10 pounds"}
    | {"day": "Sunday|Wednesday", "who comes along": "two children|a grandmother in a wheelchair|nobody"},
    "a bus": {"from": "the university|the market|the stadium", "to": "the lake|the castle|the harbour"}
    | {"leave at": "7:20|12:00|23:10", "rule": "without a change|the fewest stops|not line 61"},
    "a doctor's appointment": {"why": "a cough|a sore knee|a vaccination"}
    | {"when": "in the morning|after work|as soon as possible", "insurance": "public|private"},
}
_PERSONAS = {
    "I work as {}.": "a nurse|a baker|a teacher of music|a gardener|a pilot|a librarian|a carpenter|a vet",
    "I have {}.": "three dogs|a parrot that talks|two small daughters|a twin brother|no car|a boat|an old piano",
    "I love {}.": "hiking|old films|chess|cooking for friends|swimming in lakes|science fiction|knitting|karaoke",
    "I cannot stand {}.": "coffee|heights|loud music|cold weather|spiders|long journeys|getting up early",
    "I live {}.": "on an island|in a big city|on a farm|in a small flat above a shop|near the mountains",
    "I dream of {}.": "seeing Japan|writing a book|my own restaurant|running a marathon|learning to fly",
}
_PROBLEMS = (
    "A shop sells {a} boxes of {b} pens each, and takes {c} dollars for a pen. How much does it take for all pens?",
    "{name} reads {a} pages a day for {b} days, and the book has {d} pages more. How many pages does the book have?",
    "A train goes {b} hours at {d} miles an hour, rests {c} minutes, and goes {a} hours more. How far does it go?",
    "{name} has {d} coins, gives {a} to each of {c} friends and finds {b} more. How many coins are there now?",
    "A tank of {d}0 litres loses {b} litres an hour and gets {c}. After how many hours is half of it left?",
    "{name} saves {b} dollars a week, and spends a third of it. What is saved after {a}2 weeks?",
    "Of {d} pupils {a} have a dog, {b} have a cat, and {c} have both. How many have neither?",
    "A garden is {a} metres wide and {b} metres longer than that. What do {c} fences around it take in metres?",
)
_NAMES = "Amira|Jonas|Mei|Pavel|Rosa|Tom"


def embedded_topics(domain: str) -> Iterator[tuple[str, str]]:
    """Yields the texts for both sides of each dialogue."""
    for number in range(NUM_TOPICS):
        yield _MAKERS[domain](number)


def _question(number: int) -> tuple[str, str]:
    return (QUESTIONS[number],) * 2


def _task(number: int) -> tuple[str, str]:
    scene = list(_TASKS)[number % len(_TASKS)]
    wishes = list(product(*(values.split("|") for values in _TASKS[scene].values())))
    drawn = Random(scene).sample(wishes, NUM_TOPICS // len(_TASKS) + 1)[number // len(_TASKS)]
    wishes_text = ", ".join(f"{name}: {value}" for name, value in zip(_TASKS[scene], drawn, strict=True))
    return (f"You look for {scene} ({wishes_text}), and want it booked or settled in the end.",) * 2


def _personas(number: int) -> tuple[str, str]:
    random = Random(f"persona:{number}")
    drawn = {text: random.sample(values.split("|"), 2) for text, values in _PERSONAS.items()}
    for_a, for_b = ("\n".join(text.format(values[side]) for text, values in drawn.items()) for side in (0, 1))
    return for_a, for_b


def _problem(number: int) -> tuple[str, str]:
    random = Random(f"problem:{number}")
    ranges = {"a": (3, 19), "b": (4, 29), "c": (2, 3), "d": (60, 97)}
    values = {name: random.randint(*bounds) for name, bounds in ranges.items()}
    text = _PROBLEMS[number % len(_PROBLEMS)].format(name=random.choice(_NAMES.split("|")), **values)
    return text, text


_MAKERS: Mapping[str, Callable[[int], tuple[str, str]]] = {
    KNOWLEDGE: _question,
    TASK: _task,
    CHAT: _personas,
    REASONING: _problem,
}


QUESTION_DOMAINS = (KNOWLEDGE, REASONING)  # their topics can be the first turn
SUFFIXES = (".jsonl", ".json", ".csv")
_TAG = re.compile(r"<[^<>]{1,80}>")  # MultiWOZ marks values in its goals


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
    return row.inside({name: _TAG.sub("", text)}).text(name)


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
            problem = "no such file or folder" if not place.exists() else "this is no topic file"
            raise UserError(problem, place=path, hint=f"pipeline.topics={EMBEDDED}, or a {', '.join(SUFFIXES)} file")
        if not files:
            raise UserError("no topic file is here", place=path, hint=f"put a {', '.join(SUFFIXES)} file there")
        found += files
    return found


@dataclass(frozen=True, kw_only=True)
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
    report: ReadReport = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "report", ReadReport(self.on_bad_row))

    def settings(self) -> dict[str, Any]:
        """Collects what the rows depend on."""
        names = [] if EMBEDDED in self.paths else [str(file) for file in topic_files(self.paths)]
        files = list(hash_files(Path(), names).values()) or EMBEDDED
        options = {"domains": list(self.domains), "open_with_topic": self.open_with_topic, "limit": self.limit}
        return {"files": files, **options}

    def rows(self) -> Iterator[Row]:
        """Reads the rows, one for each dialogue."""
        self.report.counts.clear()
        self.report.rejects.clear()
        # Bad rows have no domain: only the first reader reports them.
        readers = [self._of(domain, self.report if not i else None) for i, domain in enumerate(self.domains)]
        number = 0
        for number, row in enumerate(_in_turn(readers), start=1):
            yield row
            if number == self.limit:
                return
        if not number:
            raise UserError("no topic is here", place=", ".join(self.paths), hint=f"pipeline.topics={EMBEDDED}")

    def _of(self, domain: str, report: ReadReport | None) -> Iterator[Row]:
        number = 0
        for number, (key, topic) in enumerate(self._topics(domain, report or ReadReport("skip")), start=1):  # noqa: B007
            yield {
                KEY: key,
                "domain": domain,
                "source": topic.source,
                "for_a": topic.for_a.strip(),
                "for_b": topic.for_b.strip(),
                "turns": [" ".join(topic.for_a.split())] if self.open_with_topic and domain in QUESTION_DOMAINS else [],
            }
        if not number and self.all_needed:
            place = ", ".join(self.paths)
            raise UserError(f"no topic of the domain {domain} is here", place=place, hint="leave it out of domains")

    def _topics(self, domain: str, report: ReadReport) -> Iterator[tuple[str, Topic]]:
        if EMBEDDED in self.paths:
            for number, (for_a, for_b) in enumerate(embedded_topics(domain)):
                yield f"{domain}:{number}", Topic(domain, EMBEDDED, for_a, for_b)
            return
        for file in topic_files(self.paths):
            for row in read_rows(file, report):
                try:
                    for key, topic in _read(row):
                        if topic.domain == domain:
                            yield key, topic
                except BadRow as error:
                    report.reject(row.file, row.line, error, row.values)


def _read(row: FileRow) -> Iterator[tuple[str, Topic]]:
    fields = {name: layout.fields for name, layout in LAYOUTS.items()}
    # MultiWOZ's original file is one object with all dialogues by name.
    goals = [name for name, one in row.values.items() if isinstance(one, Mapping) and "goal" in one]
    if goals and "goal" not in row.values:
        yield from ((name, _goal(row.inside(row.values[name]))) for name in goals)
        return
    yield row.default_id, LAYOUTS[row.layout(fields)].read(row)


def _in_turn(readers: Iterable[Iterator[Row]]) -> Iterator[Row]:
    rest = list(readers)
    while rest:
        for reader in list(rest):
            row = next(reader, None)
            if row is None:
                rest.remove(reader)
            else:
                yield row
