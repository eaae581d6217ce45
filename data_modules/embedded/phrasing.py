"""The phrases around a reply's clauses (openers, closings, first-person remarks), and the writing of whole replies.

Nothing here may distinguish faithful from hallucinated replies. First-person remarks come in pairs that share their
words: one claims an experience or an opinion, its partner asks for the seeker's or declines to have one.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from data_modules.reading.formats import read_sections

T = TypeVar("T")
Random01 = Callable[[], float]  # draws from [0, 1)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ONSETS = _words("""
    Bel Cor Dar El Fen Gal Har Il Jor Kel Lor Mar Nor Or Pel Quin Ros Sel Tor Ul Var Wen Yar Zel Bran Cal Dun Est Fal
    Gren Hol Ing Kar Lin Mor Nal Os Pran Rav Sten Tal Ves Wil Ash Bor Cas Del Em
""")
_VOWELS = _words("a e i o u ia io ea")
_CONSONANTS = _words("b d g k l m n r s t v z nd lt rn sk lm rt st ng")
_ENDS = _words("a o e i an en in on ar er or al el is os us ina ora eta ilo ade une age ent ima ena osa ula ane ire")
_FIRST = _words("""
    Ada Anton Bela Bruno Clara Carl Dora David Elsa Emil Flora Felix Greta Gustav Hanna Hugo Ida Ivan Julia Jonas Karin
    Klaus Lena Leo Marta Max Nina Noel Olga Oscar Paula Peter Rosa Ralph Sonja Simon Tessa Theo Vera Victor Wanda Walter
""")
_SMALL = _words("""
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen
""")
_TENS = _words("twenty thirty forty fifty sixty seventy eighty ninety")
NUM_NAMES = len(_ONSETS) * len(_VOWELS) * len(_CONSONANTS) * len(_ENDS)
_STRIDE = 7919  # prime to NUM_NAMES: numbers that are near each other give names that look nothing alike
_CYCLE = 20  # a number modulo this decides the split
_RESIDUES = {"train": range(16), "validation": range(16, 18), "test": range(18, 20)}


def pick(random: Random01, options: Sequence[T]) -> T:
    """Draws one of the options, all equally likely."""
    return options[int(random() * len(options))]


def word(random: Random01, split: str) -> str:
    """Draws an invented name that belongs to `split` alone."""
    residues = _RESIDUES[split]
    number = int(random() * (NUM_NAMES // _CYCLE)) * _CYCLE + pick(random, residues)
    # Different numbers give different names.
    rest, onset = divmod(number * _STRIDE % NUM_NAMES, len(_ONSETS))
    rest, vowel = divmod(rest, len(_VOWELS))
    end, consonant = divmod(rest, len(_CONSONANTS))
    return _ONSETS[onset] + _VOWELS[vowel] + _CONSONANTS[consonant] + _ENDS[end]


def person(random: Random01, split: str) -> str:
    """Draws a person's name: an everyday first name and an invented surname."""
    return f"{pick(random, _FIRST)} {word(random, split)}"


def in_words(number: int) -> str:
    """Writes a number from 0 to 9,999 in words. Round hundreds stay hundreds: 1,200 is twelve hundred."""
    if number < 20:
        return _SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_SMALL[ones]}" if ones else "")
    unit, name = (1000, "thousand") if number % 1000 == 0 else (100, "hundred")
    head, rest = divmod(number, unit)
    return f"{in_words(head)} {name}" + (f" and {in_words(rest)}" if rest else "")


_PHRASES = dict(read_sections(Path(__file__).with_name("phrases.txt")))
PERSONAL = tuple(tuple(line.split(" > ")) for line in _PHRASES.pop("personal"))
OPENERS, LEADS, JOINTS, TAILS, IGNORANCE, GENERIC, GREETINGS, REACTIONS = (
    tuple(phrase for line in lines for phrase in line.split(" | ")) for lines in _PHRASES.values()
)


Mark = tuple[int, int, str]  # an unsupported part: start, end, kind of hallucination


class Clause(NamedTuple):
    """A verb phrase of a reply; `start:end` is the part that the knowledge does not support (both 0: none)."""

    text: str
    start: int = 0
    end: int = 0
    kind: str = ""  # of the marked hallucination


class Plan(NamedTuple):
    """The words around the clauses of a reply; a faithful reply and its hallucinated partner share them."""

    opener: str
    lead: str
    subject: str
    tail: str
    joint_choice: float  # from [0, 1): decides how two clauses are joined
    joint: str  # used where they become two sentences


def draw_plan(random: Random01, noun: str, full_name: str, unknown_topic: str | None) -> Plan:
    """Draws a plan; `unknown_topic` is an indirect question that the speaker admits to be unable to answer."""
    opener = pick(random, OPENERS) if random() < 0.1 else ""
    lead = pick(random, LEADS) if random() < 0.14 else ""
    if unknown_topic:
        lead = pick(random, IGNORANCE).format(unknown_topic)
    roll = random()
    subject = "it" if roll < 0.5 else f"the {noun}" if roll < 0.75 else full_name
    tail = pick(random, TAILS) if random() < 0.1 else ""
    return Plan(opener, lead, subject, tail, random(), pick(random, JOINTS))


def write_reply(plan: Plan, clauses: Sequence[Clause], remark: Clause | None) -> tuple[str, list[Mark]]:
    """Writes a reply, and finds the places of its marks: those of the clauses in order, then the remark's."""
    head = f"{plan.opener} " if plan.opener else ""
    subject = plan.subject
    head += f"{plan.lead} {subject} " if plan.lead else f"{subject[0].upper()}{subject[1:]} "
    parts, marks, length = [head], [], len(head)
    last = len(clauses) - 1
    for i, (text, start, end, kind) in enumerate(clauses):
        if end:
            marks.append((length + start, length + end, kind))
        after = "."
        if i < last:
            after = (
                " and " if plan.joint_choice < 0.5 else ", and it " if plan.joint_choice < 0.7 else f". {plan.joint} "
            )
        parts += (text, after)
        length += len(text) + len(after)
    if remark:
        if remark.end:
            marks.append((length + 1 + remark.start, length + 1 + remark.end, remark.kind))
        parts += (" ", remark.text)
    if plan.tail:
        parts += (" ", plan.tail)
    return "".join(parts), marks
