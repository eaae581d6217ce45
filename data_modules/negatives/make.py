"""Makes the negatives of every example from all kinds in turn, and caches them on disk."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from data_modules.negatives.entities import Finder, find_entities, spacy_model
from data_modules.negatives.entity_swap import entity_swaps
from data_modules.negatives.kinds import ENTITY_SWAP, KINDS, ORIGINAL, OTHER, VERBATIM, check_kinds
from data_modules.negatives.original import original_responses
from data_modules.negatives.other import other_responses
from data_modules.negatives.verbatim import verbatim_knowledge
from faithkit.errors import UserError
from faithkit.files.cache import cache_dir, cache_entry
from faithkit.provenance.row_keys import text_key
from faithkit.records import Example
from faithkit.words import VERSION as WORDS_VERSION

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
    kinds: Sequence[str] = KINDS,
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
    texts, used = [], []
    counts: Counter[str] = Counter()
    for place, example in enumerate(examples):
        chosen = _take_turns({kind: made[kind][place] for kind in kinds}, example, num, seed)
        if not chosen:
            raise _no_negative(example, kinds)
        texts.append(tuple(chosen))
        used.append(tuple(chosen.values()))
        counts.update(f"negatives: {kind}" for kind in chosen.values())
        counts[f"rows with fewer than {num} negatives"] += len(chosen) < num
    return Negatives(texts, used, +counts)


def _candidates(
    kind: str, examples: Sequence[Example], num: int, seed: int, find: Finder | None
) -> Sequence[Sequence[str]]:
    if kind == ORIGINAL:
        return original_responses(examples)
    if kind == VERBATIM:
        return verbatim_knowledge(examples)
    if kind == OTHER:
        return other_responses(examples, num, seed)
    assert find is not None, "entity swaps need a finder"
    return entity_swaps(examples, num, seed, find)


def _take_turns(made: Mapping[str, Sequence[str]], example: Example, num: int, seed: int) -> dict[str, str]:
    """Chooses up to `num` texts from the kinds in turn, and returns them with their kinds."""
    kinds = list(made)
    digest = hashlib.blake2b(f"{seed}:{example.id}".encode(errors="surrogatepass"), digest_size=8).digest()
    start = int.from_bytes(digest, "little") % len(kinds)
    order = kinds[start:] + kinds[:start]
    seen = {text_key(example.response), ""}
    chosen: dict[str, str] = {}
    for texts in zip_longest(*(made[kind] for kind in order)):
        for kind, text in zip(order, texts, strict=True):
            if text and len(chosen) < num and (key := text_key(text)) not in seen:
                seen.add(key)
                chosen[text] = kind
    return chosen


def _no_negative(example: Example, kinds: Sequence[str]) -> UserError:
    missing = [kind for kind in (OTHER, VERBATIM) if kind not in kinds]
    hint = f"add {' or '.join(missing)} to the kinds" if missing else "the data are too few to make negatives from"
    problem = f"example {example.id}: {', '.join(kinds)} give no negative"
    return UserError(problem, place=f"{example.source}/{example.split}", hint=hint)


def cached_negatives(
    examples: Sequence[Example], *, kinds: Sequence[str] = KINDS, num: int = 4, seed: int = 0, weights: str = WEIGHTS
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

    return cache_entry(cache_dir("negatives") / _key(examples, settings), build, _read)


def _read(folder: Path) -> Negatives:
    texts, used, counts = json.loads((folder / NEGATIVES).read_text(encoding="utf-8"))
    return Negatives([tuple(row) for row in texts], [tuple(row) for row in used], Counter(counts))


def describe(kinds: Sequence[str], num: int, seed: int, weights: str) -> dict[str, object]:
    """Describes all settings that the negatives depend on."""
    check_kinds(kinds, num)
    settings: dict[str, object] = {"version": [VERSION, WORDS_VERSION], "kinds": list(kinds), "num": num, "seed": seed}
    return settings | ({"model": spacy_model(weights)} if ENTITY_SWAP in kinds else {})


def _key(examples: Sequence[Example], settings: Mapping[str, object]) -> str:
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
    for e in examples:
        digest.update(json.dumps([e.id, e.group, e.knowledge, e.response, e.original, e.tags]).encode())
    return digest.hexdigest()
