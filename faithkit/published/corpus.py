"""RAGTruth's published analysis (Niu et al. 2024, first version, Tables 2 to 4), by the names of our own tables."""

from collections.abc import Mapping
from typing import Any

from faithkit.published.judges import published_counts
from faithkit.published.tables import published_table

Row = Mapping[str, Any]


def basic_rows() -> dict[str, Row]:
    """Gives Table 2 by task, `all` too; the summaries' two corpora are two tasks."""
    return {row["task"]: row for row in published_table("ragtruth_basic").rows}


def model_rows() -> dict[tuple[str, str], Row]:
    """Gives Table 3 by model in lower case and task, `all` too."""
    return {(row["model"], row["task"]): row for row in published_table("ragtruth_models").rows}


def bucket_rows(by: str) -> dict[str, list[Row]]:
    """Gives Table 4 by task, shortest bucket first.

    Args:
        by: `context` or `response`: whose length.
    """
    found: dict[str, list[Row]] = {}
    for row in published_table("ragtruth_lengths").rows:
        if row["by"] == by:
            found.setdefault(row["task"], []).append(row)
    return found


def citation() -> str:
    """Names the paper and its tables."""
    tables = [published_table(name) for name in ("ragtruth_basic", "ragtruth_models", "ragtruth_lengths")]
    return f"{tables[0].citation}, {', '.join(str(table.table) for table in tables[1:])}"


def part_note(num_responses: int) -> str:
    """Says of how many responses the paper's figures are, where ours are fewer or more."""
    whole = basic_rows()["all"]["responses"]
    if num_responses == whole:
        return ""
    return f"these are {num_responses:,} responses, the paper's {whole:,}: counts differ, and shares are of a part"


def begin_rows(dataset: str) -> dict[str, Row]:
    """Gives FaithDial's Table 1 by system; nothing for other data than the audit."""
    return {row["system"]: row for row in published_table("faithdial_begin").rows} if dataset == "audit" else {}


def size_rows(dataset: str) -> dict[str, Row]:
    """Gives FaithDial's Table 2 by split; nothing for other data."""
    return {row["split"]: row for row in published_table("faithdial_sizes").rows} if dataset == "faithdial" else {}


def count_rows(dataset: str) -> dict[str, Row]:
    """Gives responses and hallucinated ones by part, of what DiaHalu's and HalluDial's papers count."""
    counts, _ = published_counts(dataset)
    return {part: {"responses": one, "hallucinated": wrong} for part, (one, wrong) in counts.items()}
