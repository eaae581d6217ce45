"""Topics of our own, so that self-dialogues need no file: some are written by hand, others are put together by number.

The same ones at every time, `NUMBER` of each domain.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from random import Random

from data_modules.datasets.diahalu import CHAT, KNOWLEDGE, REASONING, TASK

NUMBER = 56

# Questions with common mistakes in them, some about what nobody can know.
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
    """Yields what both sides of each dialogue are told."""
    for number in range(NUMBER):
        yield _MAKERS[domain](number)


def _question(number: int) -> tuple[str, str]:
    return (QUESTIONS[number],) * 2


def _task(number: int) -> tuple[str, str]:
    scene = list(_TASKS)[number % len(_TASKS)]
    wishes = list(product(*(values.split("|") for values in _TASKS[scene].values())))
    drawn = Random(scene).sample(wishes, NUMBER // len(_TASKS) + 1)[number // len(_TASKS)]
    told = ", ".join(f"{name}: {value}" for name, value in zip(_TASKS[scene], drawn, strict=True))
    return (f"You look for {scene} ({told}), and want it booked or settled in the end.",) * 2


def _personas(number: int) -> tuple[str, str]:
    random = Random(f"persona:{number}")
    drawn = {text: random.sample(values.split("|"), 2) for text, values in _PERSONAS.items()}
    return tuple("\n".join(text.format(own[side]) for text, own in drawn.items()) for side in (0, 1))  # type: ignore[return-value]


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
