"""Published figures by benchmark, in percent: detectors on RAGTruth, judges on dialogue benchmarks, corpus statistics.

Protocols differ from ours and from each other, so each row names its source. RAGTruth's paper gives precision, recall
and F1 by task in its first version; figures of its revised version, and of other papers, are read in papers that cite
them: the notes in the files list what could be confirmed, and where. HalluDial's paper gives precision and recall as
means over both classes, DiaHalu's those of the hallucinated class.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from faithkit.published.published_tables import PublishedTable, published_table
from faithkit.records import Example

TEST_RESPONSES = 450 * 6  # sources, models
TASKS = ("qa", "data2txt", "summary", "")  # "" is overall; the order of the paper's columns
PUBLISHED_LEVELS = ("response", "char")
V1, REVISED = "v1", "revised"
BY_TASK = {"response": "ragtruth_response_level", "char": "ragtruth_span_level"}  # the first version's tables
OVERALL = {REVISED: "ragtruth_revised", "Luna": "luna", "RAG-HAT": "rag_hat", "LettuceDetect": "lettucedetect"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDetector:
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
        """Cites the paper of the figures and its protocol."""
        return "; ".join(part for part in (self.table.citation, self.table.protocol) if part)


@cache
def all_published_detectors() -> tuple[PublishedDetector, ...]:
    """Reads all figures, those by task first."""
    rows = []
    for level, name in BY_TASK.items():
        table = published_table(name)
        rows += [PublishedDetector(**row, source=V1, level=level, table=table) for row in table.rows]
    for source, name in OVERALL.items():
        table = published_table(name)
        for row in table.rows:
            for level in PUBLISHED_LEVELS:
                figures = {name: row[f"{level}_{name}"] for name in ("precision", "recall", "f1")}
                if figures["f1"] is not None:
                    names = {"system": row["system"], "source": source, "level": level, "task": ""}
                    rows.append(PublishedDetector(**names, **figures, table=table))
    return tuple(rows)


def published_detectors(dataset: str, level: str, task: str = "") -> Sequence[PublishedDetector]:
    """Selects the figures for one level and task ("" is overall), the best F1 first; none for other datasets."""
    if dataset != "ragtruth":
        return ()
    rows = [row for row in all_published_detectors() if (row.level, row.task) == (level, task)]
    return sorted(rows, key=lambda row: -row.f1)


@cache
def ragtruth_models() -> frozenset[str]:
    """Lists the models that wrote RAGTruth's responses, in lower case."""
    return frozenset(row["model"] for row in published_table("ragtruth_models").rows)


def are_comparable(examples: Iterable[Example]) -> bool:
    """Checks whether these are responses of the models that the published figures are about."""
    return are_comparable_models(str(example.meta.get("model")) for example in examples)


def are_comparable_models(names: Iterable[str]) -> bool:
    """Checks whether the published figures are about these models."""
    return {name.lower() for name in names} <= ragtruth_models()


ALL = "all"
# Benchmark to tables, each with the column that names the part; None where all rows are of one part.
JUDGE_TABLES: Mapping[str, Sequence[tuple[str, str | None, str]]] = {
    "halludial": (("halludial_detection", None, ALL), ("halludial_scenarios", "scenario", "")),
    "halueval": (("halludial_on_halueval_dialogue", None, "dialogue"), ("halludial_on_halueval_others", "task", "")),
    "diahalu": (("diahalu_detection", "domain", ""), ("diahalu_cot", "domain", "")),
}
MEAN_OF_CLASSES = ("halludial", "halueval")  # their tables have means as precision and recall


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFigures:
    """One system's figures on one part; None where they were not given.

    Args:
        note: The paper and its table, and what was tested.
    """

    system: str
    part: str
    macro_f1: float | None = None
    f1: float | None = None
    faithful_f1: float | None = None
    precision: float | None = None
    recall: float | None = None
    mean_precision: float | None = None
    mean_recall: float | None = None
    accuracy: float | None = None
    note: str


@cache
def judge_figures(benchmark: str, part: str = ALL) -> tuple[JudgeFigures, ...]:
    """Selects the figures of a part, the best first; none for other benchmarks."""
    found = [row for row in _read_judge_figures(benchmark) if row.part == part]
    return tuple(sorted(found, key=lambda row: -max(row.macro_f1 or 0.0, row.f1 or 0.0)))


def published_counts(benchmark: str) -> tuple[dict[str, tuple[int, int]], str]:
    """Gives examples and hallucinated ones by part, with `all`, and the paper's name; nothing for other benchmarks."""
    if benchmark == "diahalu":
        table = published_table("diahalu_counts")
        return {row["domain"]: (row["dialogues"], row["hallucinated"]) for row in table.rows}, table.citation
    if benchmark != "halludial":
        return {}, ""
    table = published_table("halludial_counts")
    parts = {row["scenario"]: (row["train"] + row["test"], row["hallucinated"]) for row in table.rows}
    whole = (sum(examples for examples, _ in parts.values()), sum(wrong for _, wrong in parts.values()))
    return parts | {ALL: whole}, table.citation


def _read_judge_figures(benchmark: str) -> list[JudgeFigures]:
    found = []
    for name, column, part in JUDGE_TABLES.get(benchmark, ()):
        table = published_table(name)
        for row in table.rows:
            kept: dict[str, Any] = {n: row.get(n) for n in ("macro_f1", "f1", "faithful_f1", "accuracy")}
            mean = "mean_" if benchmark in MEAN_OF_CLASSES else ""
            kept |= {f"{mean}{n}": row[n] for n in ("precision", "recall")}
            note = f"{table.citation}: {table.protocol}"
            found.append(JudgeFigures(system=row["system"], part=row[column] if column else part, note=note, **kept))
    return found


Row = Mapping[str, Any]


def bucket_rows(by: str) -> dict[str, list[Row]]:
    """Gives Table 4 by task, shortest bucket first.

    Args:
        by: `context` or `response`, whichever is measured.
    """
    found: dict[str, list[Row]] = {}
    for row in published_table("ragtruth_lengths").rows:
        if row["by"] == by:
            found.setdefault(row["task"], []).append(row)
    return found


def ragtruth_citation() -> str:
    """Names the paper and its tables."""
    tables = [published_table(name) for name in ("ragtruth_basic", "ragtruth_models", "ragtruth_lengths")]
    return f"{tables[0].citation}, {', '.join(str(table.table) for table in tables[1:])}"


def part_note(num_responses: int) -> str:
    """Says of how many responses the paper's figures are, where ours are fewer or more."""
    whole = published_table("ragtruth_basic").by("task")[ALL]["responses"]
    if num_responses == whole:
        return ""
    return f"these are {num_responses:,} responses, the paper's {whole:,}: counts differ, and shares are of a part"


def count_rows(dataset: str) -> dict[str, Row]:
    """Gives responses and hallucinated ones by part, of what DiaHalu's and HalluDial's papers count."""
    counts, _ = published_counts(dataset)
    return {part: {"responses": one, "hallucinated": wrong} for part, (one, wrong) in counts.items()}
