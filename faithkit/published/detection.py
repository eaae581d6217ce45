"""Published detectors on the RAGTruth test set, in percent.

The protocols differ from ours and from each other, so each row says where it comes from. RAGTruth's paper gives
precision, recall and F1 by task in its first version; of its revised one, and of other papers, what those who cite them
copy: the files' notes tell what could be confirmed, and where.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from faithkit.published.tables import PublishedTable, published_table
from faithkit.records import Example

TEST_RESPONSES = 450 * 6  # sources, models
TASKS = ("qa", "data2txt", "summary", "")  # "" is overall; the order of the paper's columns
LEVELS = ("response", "char")
V1, REVISED = "v1", "revised"
BY_TASK = {"response": "ragtruth_response_level", "char": "ragtruth_span_level"}  # the first version's tables
OVERALL = {REVISED: "ragtruth_revised", "Luna": "luna", "RAG-HAT": "rag_hat", "LettuceDetect": "lettucedetect"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One system's figures at one level of one task, in percent; None where they were not given.

    Args:
        source: A short name of the paper; `table` has all of it.
    """

    system: str
    source: str
    level: str
    task: str
    f1: float
    precision: float | None = None
    recall: float | None = None
    table: PublishedTable

    @property
    def name(self) -> str:
        """Names the system with the source of its figures."""
        return f"{self.system} ({self.source})" if self.source in (V1, REVISED) else self.system

    @property
    def protocol(self) -> str:
        """Tells which paper the figures come from and how it measured them."""
        return "; ".join(part for part in (self.table.citation, self.table.protocol) if part)


@cache
def every_published() -> tuple[Published, ...]:
    """All figures, those by task first."""
    rows = []
    for level, name in BY_TASK.items():
        table = published_table(name)
        rows += [Published(**row, source=V1, level=level, table=table) for row in table.rows]
    for source, name in OVERALL.items():
        table = published_table(name)
        for row in table.rows:
            for level in LEVELS:
                figures = {name: row[f"{level}_{name}"] for name in ("precision", "recall", "f1")}
                if figures["f1"] is not None:
                    own = {"system": row["system"], "source": source, "level": level, "task": ""}
                    rows.append(Published(**own, **figures, table=table))
    return tuple(rows)


def published(dataset: str, level: str, task: str = "") -> Sequence[Published]:
    """Selects the figures for one level and task ("" is overall), the best F1 first; none for other datasets."""
    if dataset != "ragtruth":
        return ()
    rows = [row for row in every_published() if (row.level, row.task) == (level, task)]
    return sorted(rows, key=lambda row: -row.f1)


@cache
def models() -> frozenset[str]:
    """The models whose responses RAGTruth has, in lower case."""
    return frozenset(row["model"] for row in published_table("ragtruth_models").rows)


def comparable(examples: Iterable[Example]) -> bool:
    """Tells whether these are responses of the models that the published figures are about."""
    return comparable_models(str(example.meta.get("model")) for example in examples)


def comparable_models(names: Iterable[str]) -> bool:
    """Tells whether these are models that the published figures are about."""
    return {name.lower() for name in names} <= models()
