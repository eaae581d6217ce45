"""Invented names, and numbers in words.

A name is a number written in syllables. The number decides the split to which the name belongs, so that no name of one
split can occur in another.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

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
    return spell(number)


def spell(number: int) -> str:
    """Spells the name of a number from 0 to NUM_NAMES - 1; different numbers give different names."""
    rest = number * _STRIDE % NUM_NAMES
    rest, onset = divmod(rest, len(_ONSETS))
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
