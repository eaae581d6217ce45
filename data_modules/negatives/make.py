"""Makes the negatives of every example from all kinds in turn, and caches them on disk."""

import hashlib
import heapq
import json
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain, zip_longest
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from data_modules.data_options import ENTITY_SWAP, GIVEN, MADE, NEGATIVE_KINDS, ORIGINAL, OTHER, VERBATIM
from data_modules.negatives.entity_swap import Finder, entity_swaps, find_entities, spacy_model
from data_modules.reading import File, ReadReport, Records, Source, WrappedSource, read_examples
from data_modules.splits import SplitPlan
from faithkit.errors import UserError
from faithkit.files.cache import cache_dir, cache_entry
from faithkit.provenance.row_keys import group_hash, text_key
from faithkit.records import Example
from faithkit.words import VERSION as WORDS_VERSION
from faithkit.words import best_sentences, unicode_content_words

MAX_WORDS = 60  # a longer text is cut to the sentences nearest to the response


def verbatim_knowledge(examples: Sequence[Example]) -> list[list[str]]:
    """Returns one text for each example."""
    return [[best_sentences(e.knowledge, e.response, MAX_WORDS).strip()] for e in examples]


HALLUCINATED_TAGS = {"hallucination", "partial hallucination"}  # the tags describe the original response


def check_kinds(kinds: Sequence[str], num: int) -> None:
    """Checks the settings.

    Raises:
        UserError: An unknown kind, a kind named twice, or fewer than one negative.
    """
    if isinstance(kinds, str) or not kinds or set(kinds) - set(NEGATIVE_KINDS) or len(set(kinds)) < len(kinds):
        shown = kinds if isinstance(kinds, str) else list(kinds)
        raise UserError(f"kinds of negatives: {shown!r}", hint=f"give a list of some of {', '.join(NEGATIVE_KINDS)}")
    if not isinstance(num, int) or num < 1:
        raise UserError(f"number of negatives: {num!r}", hint="use 1 or more")


VERSION = 2  # raised when the same records give other negatives
WEIGHTS = "spacy-sm"
NEGATIVES = "negatives.json"  # the file of a cache entry

log = logging.getLogger("faithkit")


class Negatives(NamedTuple):
    """The negatives of each example, the kind of each negative, and counts."""

    texts: list[tuple[str, ...]]
    kinds: list[tuple[str, ...]]
    counts: Counter[str]


def make_negatives(
    examples: Sequence[Example],
    *,
    kinds: Sequence[str] = MADE,
    num: int = 4,
    seed: int = 0,
    find: Finder | None = None,
) -> Negatives:
    """Makes up to `num` texts for each example, all different, and different from its response.

    The kinds take turns, and each example begins with another kind, so that all kinds are used where `num` is small.

    Args:
        find: Finds named entities, for entity swaps.

    Raises:
        UserError: An example for which no kind has a text.
    """
    check_kinds(kinds, num)
    made = {kind: _candidates(kind, examples, num, seed, find) for kind in kinds}
    texts: list[tuple[str, ...]] = []
    used: list[tuple[str, ...]] = []
    counts: Counter[str] = Counter()
    for place, example in enumerate(examples):
        digest = hashlib.blake2b(f"{seed}:{example.id}".encode(errors="surrogatepass"), digest_size=8).digest()
        start = int.from_bytes(digest, "little") % len(kinds)
        order = [*kinds[start:], *kinds[:start]]
        seen = {text_key(example.response), ""}
        chosen: dict[str, str] = {}  # the texts, each with its kind
        for drawn in zip_longest(*(made[kind][place] for kind in order)):
            for kind, text in zip(order, drawn, strict=True):
                if text and len(chosen) < num and (key := text_key(text)) not in seen:
                    seen.add(key)
                    chosen[text] = kind
        if not chosen:
            if set(kinds) == {GIVEN}:  # such a row has no contrastive part
                texts.append(())
                used.append(())
                counts["rows without negatives"] += 1
                continue
            missing = [kind for kind in (OTHER, VERBATIM) if kind not in kinds]
            hint = "the data are too few to make negatives from"
            if missing:
                hint = f"add {' or '.join(missing)} to the kinds"
            problem = f"example {example.id}: {', '.join(kinds)} give no negative"
            raise UserError(problem, place=f"{example.source}/{example.split}", hint=hint)
        texts.append(tuple(chosen))
        used.append(tuple(chosen.values()))
        counts.update(f"negatives: {kind}" for kind in chosen.values())
        counts[f"rows with fewer than {num} negatives"] += len(chosen) < num
    return Negatives(texts, used, +counts)


def _candidates(
    kind: str, examples: Sequence[Example], num: int, seed: int, find: Finder | None
) -> Sequence[Sequence[str]]:
    if kind == GIVEN:
        return [example.negatives for example in examples]
    if kind == ORIGINAL:
        hallucinated = [any(tag.strip().lower() in HALLUCINATED_TAGS for tag in example.tags) for example in examples]
        return [[e.original] if e.original and wrong else [] for e, wrong in zip(examples, hallucinated, strict=True)]
    if kind == VERBATIM:
        return verbatim_knowledge(examples)
    if kind == OTHER:
        return other_responses(examples, num, seed)
    assert find is not None, "entity swaps need a finder"
    return entity_swaps(examples, num, seed, find)


def cached_negatives(
    examples: Sequence[Example], *, kinds: Sequence[str] = MADE, num: int = 4, seed: int = 0, weights: str = WEIGHTS
) -> Negatives:
    """Reads the negatives from the cache, keyed by the examples' content; makes them where they are missing.

    Args:
        weights: A spaCy model, for entity swaps.
    """
    settings = describe(kinds, num, seed, weights)

    def build(folder: Path) -> None:
        log.info("making negatives for %s examples (kept for later launches)", f"{len(examples):,}")
        made = make_negatives(examples, kinds=kinds, num=num, seed=seed, find=find_entities(weights))
        (folder / NEGATIVES).write_text(json.dumps([made.texts, made.kinds, made.counts]), encoding="utf-8")

    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
    for e in examples:
        digest.update(json.dumps([e.id, e.group, e.knowledge, e.response, e.original, e.tags, *e.negatives]).encode())
    return cache_entry(cache_dir("negatives") / digest.hexdigest(), build, _read)


def _read(folder: Path) -> Negatives:
    texts, used, counts = json.loads((folder / NEGATIVES).read_text(encoding="utf-8"))
    return Negatives([tuple(row) for row in texts], [tuple(row) for row in used], Counter(counts))


def describe(kinds: Sequence[str], num: int, seed: int, weights: str) -> dict[str, object]:
    """Describes all settings that the negatives depend on."""
    check_kinds(kinds, num)
    settings: dict[str, object] = {"version": [VERSION, WORDS_VERSION], "kinds": list(kinds), "num": num, "seed": seed}
    return settings | ({"model": spacy_model(weights)} if ENTITY_SWAP in kinds else {})


NUM_PER_WORD = 64  # examples looked at for one such word
MIN_WORDS = 3  # least content words of a response: shorter ones say nothing
SUPPORTED = 0.5  # least share of a response's content words in knowledge and gold response for it to count as right


def other_responses(examples: Sequence[Example], num: int, seed: int) -> list[list[str]]:
    """Finds up to `num` texts for each example, from the most similar dialogue on."""
    index = _SimilarExamples(sorted(examples, key=lambda e: e.id), seed)  # so that the order of the rows is irrelevant
    return [index.responses(example, num) for example in examples]


class _SimilarExamples:
    """An inverted index: finds the examples that share rare words of their knowledge with another."""

    def __init__(self, examples: Sequence[Example], seed: int):
        self.examples, self.seed = examples, seed
        self.known = {e.knowledge: frozenset(unicode_content_words(e.knowledge)) for e in examples}
        self.keys = {knowledge: text_key(knowledge) for knowledge in self.known}
        self.response_words = [set(unicode_content_words(e.response)) for e in examples]
        groups: dict[str, set[str]] = defaultdict(set)
        self.rows: dict[str, list[int]] = defaultdict(list)  # by word of the knowledge
        for place, example in enumerate(examples):
            for word in self.known[example.knowledge]:
                groups[word].add(example.group)
                self.rows[word].append(place)
        shared = {word: len(names) for word, names in groups.items() if len(names) > 1}  # by other dialogues too
        self.weight = {word: math.log(1 + len(examples) / count) for word, count in shared.items()}
        for word in self.weight:
            Random(f"{seed}:{word}").shuffle(self.rows[word])

    def responses(self, example: Example, num: int) -> list[str]:
        """Finds up to `num` responses that are not supported by the example's knowledge or response."""
        key = self.keys[example.knowledge]
        known = self.known[example.knowledge].union(unicode_content_words(example.response))
        found: dict[str, str] = {}
        # The most similar examples first, and then random ones.
        random = Random(f"{self.seed}:{example.id}")
        shared = [word for word in self.known[example.knowledge] if word in self.weight]
        scores: dict[int, float] = defaultdict(float)
        for word in heapq.nlargest(6, shared, key=lambda word: (self.weight[word], word)):
            rows = self.rows[word]
            start = random.randrange(len(rows))  # a random part of them, cyclically
            for step in range(min(NUM_PER_WORD, len(rows))):  # copying the list would cost its whole length
                scores[rows[(start + step) % len(rows)]] += self.weight[word]
        similar = [place for place, _ in sorted(scores.items(), key=lambda item: (-item[1], item[0]))]
        for place in chain(similar, (random.randrange(len(self.examples)) for _ in range(NUM_PER_WORD))):
            other = self.examples[place]
            if len(found) == num:
                break
            if other.group == example.group or self.keys[other.knowledge] == key:
                continue
            words = self.response_words[place]
            if len(words) >= MIN_WORDS and len(words & known) < SUPPORTED * len(words):
                found.setdefault(text_key(other.response), other.response)
        return list(found.values())


@dataclass(frozen=True)
class NegativesSource(WrappedSource):
    """A dataset with negatives for the examples that train, made of such examples alone.

    Args:
        kinds: Kinds of negatives, in the order of their turns.
        num: Most negatives of an example.
        weights: A spaCy model, for entity swaps.
        split_plan: How the official splits are divided; None trains on all rows of each.
    """

    kinds: Sequence[str] = MADE
    num: int = 4
    seed: int = 0
    weights: str = WEIGHTS
    split_plan: SplitPlan | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kinds(self.kinds, self.num)
        if self.generated:
            hint = "use a dataset that has files, such as data=faithdial"
            raise UserError(f"negatives are not made for {self.name}", hint=hint)

    def layout(self) -> Mapping[str, Any]:
        made = describe(self.kinds, self.num, self.seed, self.weights)
        return {**self.source.layout(), "negatives": made, "division": self.split_plan and asdict(self.split_plan)}

    def read_split(self, split: str, report: ReadReport) -> Records:
        """Yields the examples with their negatives; the split is read whole, since negatives come from others."""
        inner = ReadReport(report.on_bad_row)
        num_rows = None if self.split_plan is None else self.split_plan.num_rows
        examples = list(read_examples(self.source, split, inner, num_rows))
        report.rejects += inner.rejects
        del inner.counts["kept"]  # counted where these are read
        rows = list(range(len(examples)))  # those that train: all, if there is no plan of division
        if self.split_plan is not None:
            groups = np.array([group_hash(example.group) for example in examples], np.uint64)
            rows = self.split_plan.rows(self.split_names(), split, groups).get("train", np.array([])).tolist()
        settings: dict[str, Any] = {"kinds": self.kinds, "num": self.num, "seed": self.seed, "weights": self.weights}
        made = cached_negatives([examples[row] for row in rows], **settings) if rows else Negatives([], [], Counter())
        report.counts.update(inner.counts + made.counts)
        negatives = dict(zip(rows, made.texts, strict=True))
        for row, example in enumerate(examples):
            yield replace(example, negatives=negatives.get(row, ())), None

    def read_file(self, file: File, split: str, report: ReadReport, start: int = 0) -> Records:
        raise AssertionError("negatives come of a whole split")


def add_negatives(source: Source, settings: Mapping[str, Any], split_plan: SplitPlan | None) -> Source:
    """Returns the dataset with negatives.

    Args:
        settings: `{kinds, num, seed, weights}`, all of them optional.

    Raises:
        UserError: A setting that there is not, or a dataset that is generated.
    """
    known = [option.name for option in fields(NegativesSource) if option.name not in ("path", "source", "split_plan")]
    if unknown := set(settings) - set(known):
        raise UserError(f"data.negatives has no option {min(unknown)!r}", hint=f"its options are {', '.join(known)}")
    return NegativesSource(source, **settings, split_plan=split_plan)
