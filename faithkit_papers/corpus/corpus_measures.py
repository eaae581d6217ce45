"""Measures some rows of a corpus: counts, lengths, dialogues, copying from the knowledge, and buckets by length."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pandas import DataFrame, Series
TEXTS = {"response": "response", "context": "knowledge", "turn": "turn before"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of texts; all 0 where there are none."""

    mean: float = 0.0
    max: int = 0
    median: float = 0.0
    high: float = 0.0  # 95% are no longer
    num_texts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of some responses; density is spans per hundred words.

    Args:
        num_judged: Responses with a label or marked spans.
        num_marked: Responses with marked spans (perhaps none), and `num_marked_words` their words.
    """

    num_responses: int
    num_hallucinated: int
    num_spans: int
    num_words: int
    num_judged: int
    num_marked: int
    num_marked_words: int

    @property
    def share(self) -> float:
        return self.num_hallucinated / max(1, self.num_judged)

    @property
    def density(self) -> float:
        return 100 * self.num_spans / max(1, self.num_marked_words)

    @property
    def spans_each(self) -> float:
        return self.num_spans / max(1, self.num_marked)

    def to_dict(self) -> dict[str, float]:
        """Lists the counts and their ratios."""
        shares = {"share": self.share, "density": self.density, "spans_each": self.spans_each}
        return asdict(self) | {"num_faithful": self.num_judged - self.num_hallucinated} | shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Basic:
    """A row of RAGTruth's table 2; contexts are measured once per source, and empty ones are not."""

    num_sources: int
    counts: Counts
    context: Lengths
    response: Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A cell of table 4: responses with a length, or context length, in (low, high]; the first includes low."""

    low: int
    high: int
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogues:
    """A column of FaithDial's table 2.

    Args:
        num_turns: Of both speakers up to the last response; 0 where no response has a history.
        response, before, knowledge: Mean tokens (words and punctuation marks) of a response, of the turn before it,
            and of its knowledge.
        edited: The share of responses that were edited; None if no original is known.
        rounds, turn_words, longest_turn: Of responses that are whole dialogues: their mean rounds (two turns each), and
            the mean and the largest number of words in a turn.
    """

    num_responses: int
    num_dialogues: int
    num_turns: int
    response: float
    before: float
    knowledge: float
    edited: float | None
    rounds: float | None = None
    turn_words: float | None = None
    longest_turn: int | None = None

    @property
    def turns_each(self) -> float:
        return self.num_turns / max(1, self.num_dialogues)

    def to_dict(self) -> dict[str, float | None]:
        """Converts to a plain container, for JSON."""
        return asdict(self) | {"turns_each": self.turns_each if self.num_turns else None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """How much of the knowledge responses copy, and in how long pieces.

    Args:
        cells: The number of responses in each cell of coverage (0 to 1, rows) and density (0 to `top`, columns);
            larger densities are in the last column.
    """

    num_responses: int
    coverage: float
    density: float
    top: float
    cells: list[list[int]]


def count_responses(rows: "DataFrame") -> Counts:
    """Counts some responses."""
    marked = rows[rows["spans"].notna()]
    return Counts(
        num_responses=len(rows),
        num_hallucinated=int((rows["judged"] == 1).sum()),
        num_spans=int(marked["spans"].sum()),
        num_words=int(rows["response_words"].sum()),
        num_judged=int(rows["judged"].notna().sum()),
        num_marked=len(marked),
        num_marked_words=int(marked["response_words"].sum()),
    )


def measure_part(rows: "DataFrame") -> Basic:
    """Measures a part of a corpus: its sources, contexts and responses."""
    return Basic(
        num_sources=rows["group"].nunique(),
        counts=count_responses(rows),
        context=summarize_lengths(rows.drop_duplicates("context")["context_words"]),
        response=summarize_lengths(rows["response_words"]),
    )


def summarize_lengths(lengths: "Series[float]") -> Lengths:
    """Summarizes the lengths of known texts."""
    known = lengths.dropna()
    if not len(known):
        return Lengths()
    median, high = np.quantile(known, (0.5, 0.95)).tolist()
    return Lengths(mean=float(known.mean()), max=int(known.max()), median=median, high=high, num_texts=len(known))


def measure_texts(frame: "DataFrame") -> dict[str, dict[str, Lengths]]:
    """Measures each kind of text in words and in tokens; knowledge counts once per source."""
    found = {}
    for name, shown in TEXTS.items():
        rows = frame.drop_duplicates("context") if name == "context" else frame
        both = {unit: summarize_lengths(rows[f"{name}_{unit}"]) for unit in ("words", "tokens")}
        if both["words"].num_texts:
            found[shown] = both
    return found


def count_edits(rows: "DataFrame") -> dict[str, int]:
    """Counts edited responses; empty if no original is known. A response without an original was not edited."""
    if rows["edited"].isna().all():
        return {}
    edited = int((rows["edited"] == 1).sum())  # NaN without an original
    return {"edited": edited, "not edited": len(rows) - edited}


def measure_dialogues(rows: "DataFrame") -> Dialogues:
    """Measures the dialogues of some rows, and their edits."""
    longest = rows.groupby("group")["history"].max() + 1
    tokens = {name: summarize_lengths(rows[f"{name}_tokens"]).mean for name in TEXTS}
    edits = count_edits(rows)
    edited = edits["edited"] / len(rows) if edits else None
    spoken = rows[rows["turns"] > 0]
    whole: dict[str, Any] = {}
    if len(spoken):
        whole = {
            "rounds": float(spoken["turns"].mean()) / 2,
            "turn_words": float(spoken["spoken_words"].sum() / spoken["turns"].sum()),
            "longest_turn": int(spoken["longest_turn"].max()),
        }
    return Dialogues(
        num_responses=len(rows),
        num_dialogues=len(longest),
        num_turns=int(longest.sum()) if (rows["history"] > 0).any() else 0,
        response=tokens["response"],
        before=tokens["turn"],
        knowledge=tokens["context"],
        edited=edited,
        **whole,
    )


def measure_extraction(frame: "DataFrame") -> dict[str, Extraction]:
    """Measures coverage and density of the responses and, where some were edited, of the originals, on one scale."""
    pairs = {
        name: known.to_numpy()
        for name, prefix in (("responses", ""), ("before the edits", "original_"))
        if len(known := frame[[f"{prefix}coverage", f"{prefix}density"]].dropna())
    }
    # The top is the 99% quantile, so that a few copied passages do not hide the rest.
    top = max([1.0, *(float(np.ceil(np.quantile(pair[:, 1], 0.99))) for pair in pairs.values())])
    found = {}
    for name, pair in pairs.items():
        coverage, density = pair.T
        limits = ((0.0, 1.0 + 1e-9), (0.0, top))
        cells, _, _ = np.histogram2d(coverage, np.minimum(density, top), bins=40, range=limits)
        found[name] = Extraction(
            num_responses=len(pair),
            coverage=float(coverage.mean()),
            density=float(density.mean()),
            top=top,
            cells=cells.astype(int).tolist(),
        )
    return found


def make_buckets(rows: "DataFrame", column: str) -> list[Bucket]:
    """Divides judged responses into five buckets by length, of equal size but for ties; empty ones are left out."""
    kept = rows[rows["judged"].notna() & rows[column].notna()]
    if not len(kept):
        return []
    ordered = np.sort(kept[column].to_numpy())
    ranks = [-(-len(ordered) * each // 5) - 1 for each in range(1, 6)]
    edges = [int(ordered[0]), *(int(ordered[rank]) for rank in ranks)]
    place = np.searchsorted(edges[1:-1], kept[column], side="left")  # a length that equals an edge lies below it
    return [
        Bucket(low=edges[each], high=edges[each + 1], counts=count_responses(kept[place == each]))
        for each in np.unique(place).tolist()
    ]
