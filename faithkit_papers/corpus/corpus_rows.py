"""Reads the examples of a corpus into a table of numbers: one row each, without the texts.

Examples are read one by one and released, so the memory for a corpus of any size is a few numbers and names per row.
"""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data_modules.reading.fields import FACETS, read_facet
from faithkit.metrics.responses.ngrams import measure_copying
from faithkit.packages import needs_package
from faithkit.records import HALLUCINATED, Example
from faithkit.words import words_and_marks

if TYPE_CHECKING:
    import pandas as pd


GENERIC, HALLUCINATION, PARTIAL = "generic", "hallucination", "partial hallucination"
ENTAILMENT, UNCOOPERATIVE = "entailment", "uncooperative"
CLASSES = (ENTAILMENT, UNCOOPERATIVE, GENERIC, PARTIAL, HALLUCINATION)
ACTS = (
    *("edification", "disclosure", "question", "acknowledgment", "confirmation", "advisement"),
    *("interpretation", "reflection"),
)
SHORT = {"ack": "acknowledgment", "advice": "advisement"}
_WORD = re.compile("[a-z]{3,}")


def begin_class(tags: Iterable[str]) -> str | None:
    """Finds BEGIN's class of a response by its tags, as FaithDial's audit has them; None if they are none of its.

    Uncooperative is faithful but does not answer the dialogue; partial hallucination is both hallucinated and entailed.

    >>> begin_class(["Hallucination", "Entailment"]), begin_class(["Uncooperative"]), begin_class(["Evident Conflict"])
    ('partial hallucination', 'uncooperative', None)
    """
    known = {tag.strip().lower() for tag in tags} & set(CLASSES)
    if PARTIAL in known or known >= {HALLUCINATION, ENTAILMENT}:
        return PARTIAL
    return next((name for name in (HALLUCINATION, UNCOOPERATIVE, ENTAILMENT, GENERIC) if name in known), None)


def speech_acts(value: Any) -> list[str]:
    """Finds VRM's speech acts of a response, each once: of a list of them, or of one text.

    >>> speech_acts(["Edifcation", "ack.", "edification disclosure"])
    ['edification', 'acknowledgment', 'disclosure']

    The audit's files misspell them in many ways, so a word is the act that it is nearest to; others are passed over.
    """
    given = [value] if isinstance(value, str) else value or []
    found = (_act(word) for text in given for word in _WORD.findall(str(text).lower()))
    return list(dict.fromkeys(act for act in found if act))


@cache
def _act(word: str) -> str | None:
    return SHORT.get(word) or next(iter(get_close_matches(word, ACTS, 1, 0.75)), None)


NUM_BINS = 50
NUMBERS = (
    *("judged", "spans", "history", "edited", "turns", "spoken_words", "longest_turn", "group", "context"),
    *(f"{text}_{unit}" for text in ("response", "context", "turn") for unit in ("words", "tokens")),
    *("coverage", "density", "original_coverage", "original_density"),
)
Part = tuple[str, str]  # a task and a corpus, which may be empty


class CorpusRows:
    """The numbers of a corpus, from its examples.

    Args:
        facets: Names of FACETS, or fields of `meta`, to group examples by; None takes all of FACETS.
        overlap: Measures density and coverage, which takes most of the time.
    """

    def __init__(self, examples: Iterable[Example] = (), facets: Sequence[str] | None = None, *, overlap: bool = True):
        self.facets: dict[str, list[str | None]] = {name: [] for name in (FACETS if facets is None else facets)}
        self.numbers = {name: array("d") for name in NUMBERS}
        self.parts: list[Part] = []
        self.types: dict[Part, Counter[str]] = defaultdict(Counter)
        self.positions: dict[Part, NDArray[np.float64]] = {}
        self.classes: Counter[tuple[str, str]] = Counter()  # BEGIN's, by system
        self.acts: dict[str, Counter[str]] = defaultdict(Counter)  # VRM's, by BEGIN's class
        self.num_repeated = 0
        self._pairs: set[int] = set()
        self._groups: dict[str, int] = {}
        self._contexts: dict[tuple[int, int], int] = {}
        self._knowledge: tuple[str, Sequence[str]] = ("", ())
        self._overlap = overlap
        for example in examples:
            self._add(example)

    def __len__(self) -> int:
        return len(self.parts)

    def _add(self, example: Example) -> None:
        for name, column in self.facets.items():
            column.append(None if (value := read_facet(example, name)) is None else str(value))
        part = read_part(example), str(read_facet(example, "corpus") or "")
        self.parts.append(part)
        label, spans, original = example.label, example.spans, example.original
        turn_words = example.meta.get("turn_words")  # of a whole dialogue
        group = self._groups.setdefault(example.group, len(self._groups))
        context = self._contexts.setdefault((group, hash(example.knowledge)), len(self._contexts))
        by_spans = None if spans is None else len(spans) > 0
        counts = {
            "judged": by_spans if label is None else label == HALLUCINATED,
            "spans": None if spans is None else len(spans),
            "history": len(example.history),
            "edited": None if original is None else original.strip() != example.response.strip(),
            "turns": len(turn_words) if turn_words else None,
            "spoken_words": sum(turn_words) if turn_words else None,
            "longest_turn": max(turn_words) if turn_words else None,
            "group": group,
            "context": context if example.knowledge else None,
        }
        for name, value in {**counts, **self._measure(example)}.items():
            self.numbers[name].append(np.nan if value is None else value)
        pair = hash((example.knowledge, example.history, example.response))
        self.num_repeated += pair in self._pairs
        self._pairs.add(pair)
        if example.spans is None:
            self.types[part].update(map(str, example.meta.get("types") or ()))
        elif example.spans:
            self.types[part].update(span.label for span in example.spans)
            # The positions of the spans in the response: each has weight 1, spread over its characters.
            edges, total = np.linspace(0, 1, NUM_BINS + 1), np.zeros(NUM_BINS)
            for span in example.spans:
                if span.start < span.end:
                    start, end = span.start / len(example.response), span.end / len(example.response)
                    total += np.diff(np.clip(edges, start, end)) / (end - start)
            self.positions[part] = self.positions.get(part, 0) + total
        if (found := begin_class(example.tags)) is not None:
            model, corpus = read_facet(example, "model"), read_facet(example, "corpus")
            system = f"{model or 'all'} ({corpus})" if corpus else str(model or "")  # empty where both are unknown
            self.classes[system, found] += 1
            self.acts[found].update(speech_acts(example.meta.get("vrm")))

    def to_frame(self) -> "pd.DataFrame":
        """Returns a row for each example: NUMBERS, NaN where missing; its task and part; and its facets as texts."""
        with needs_package("a table of statistics"):
            import pandas as pd

        frame = pd.DataFrame({name: np.array(column) for name, column in self.numbers.items()})
        names, facets = self.part_names(), {f"by {name}": values for name, values in self.facets.items()}
        tasks = {"task": [task for task, _ in self.parts], "part": [names[part] for part in self.parts]}
        return frame.assign(**{name: pd.Series(values, dtype=object) for name, values in {**tasks, **facets}.items()})

    def part_names(self) -> dict[Part, str]:
        """Names the parts in order: by the task, with its corpus where it has several."""
        found = set(self.parts)
        num_corpora = Counter(task for task, _ in found)
        names = {
            (task, corpus): f"{task} ({corpus or 'unknown'})" if num_corpora[task] > 1 else task
            for task, corpus in found
        }
        return dict(sorted(names.items(), key=lambda item: item[1]))

    def _measure(self, example: Example) -> dict[str, float | None]:
        """Measures the texts, and how much of the knowledge the response and the original copy."""
        if example.knowledge != self._knowledge[0]:  # several systems respond to the same knowledge
            self._knowledge = (example.knowledge, words_and_marks(example.knowledge))
        knowledge, response = self._knowledge[1], words_and_marks(example.response)
        turn = example.history[-1].text if example.history else None
        texts = {
            "response": (example.response, response),
            "context": (example.knowledge or None, knowledge),
            "turn": (turn, words_and_marks(turn or "")),
        }
        found: dict[str, float | None] = {}
        for name, (text, tokens) in texts.items():
            found[f"{name}_words"] = None if text is None else len(text.split())
            found[f"{name}_tokens"] = None if text is None else len(tokens)
        original = words_and_marks(example.original) if example.original else []
        for prefix, tokens in (("", response), ("original_", original)):
            known = self._overlap and tokens and knowledge
            both = measure_copying(tokens, knowledge) if known else (None, None)
            found |= dict(zip((f"{prefix}coverage", f"{prefix}density"), both, strict=True))
        return found


def read_part(example: Example) -> str:
    """Returns the part of a corpus: the task, scenario or domain of the example, or else the corpus."""
    return str(
        next((example.meta[name] for name in ("task", "scenario", "domain") if example.meta.get(name)), example.source)
    )
