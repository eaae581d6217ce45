"""Reads the sources of RAGTruth's tasks: a question with its passages, a text to summarize, or data to describe.

The file has one JSON object per line, as RAGTruth's `source_info.jsonl`: `source_id`, `task_type` (QA, Summary,
Data2txt), `source_info` (an object of `question` and `passages`; a text; any object), and optionally `source`, the name
of the corpus.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from construction.chain.steps import KEY, Row
from data_modules.datasets.ragtruth import SOURCE_FIELDS, SOURCES, TASKS, rows_with_ids
from data_modules.reading.rows import BadRow, ReadReport
from data_modules.reading.rows import Row as FileRow
from faithkit.embedded_name import EMBEDDED
from faithkit.errors import UserError
from faithkit.files.hashes import hash_files

QA, SUMMARY, DATA = "QA", "Summary", "Data2txt"
MAX_WORDS, WORD_RATIO = 200, 4  # of a summary: at most 200 words and a quarter of the text's (RAGTruth, Table 9)
KEEP, DROP = NULLS = ("keep", "drop")


class RagSources:
    """Reads the sources of a file.

    Args:
        path: The file, the folder with `source_info.jsonl`, or `embedded`.
        limit: Reads only the first sources.

    Raises:
        UserError: The file does not exist.
    """

    def __init__(
        self,
        path: str,
        limit: int | None = None,
        on_bad_row: str = "stop",
        embedded_rows: Mapping[str, int] | None = None,
    ):
        if path == EMBEDDED:
            from data_modules.embedded.layouts import written_layout

            path = str(written_layout("ragtruth", embedded_rows))
        place = Path(path).expanduser()
        self.file = place / SOURCES if place.is_dir() else place
        if not self.file.is_file():
            raise UserError("no file of sources", place=str(self.file), hint=f"set pipeline.path to a {SOURCES}")
        self.limit, self.on_bad_row = limit, on_bad_row

    def settings(self) -> dict[str, Any]:
        """Collects what the rows depend on."""
        return {"limit": self.limit, "content": hash_files(self.file.parent, [self.file.name])[self.file.name]}

    def rows(self) -> Iterator[Row]:
        """Reads the rows."""
        report = ReadReport(self.on_bad_row)
        number = 0
        for row, source_id in rows_with_ids(self.file, "source_id", SOURCE_FIELDS, report):
            if number == self.limit:
                return
            try:
                made = _row(row, source_id)
            except BadRow as error:
                report.reject(row.file, row.line, error, row.values)
                continue
            number += 1
            yield made


def _row(row: FileRow, source_id: str) -> Row:
    task, info = row.choice("task_type", TASKS), row.values["source_info"]
    if task == SUMMARY:
        row.text("source_info")
    elif task == QA:
        inside = row.inside(info)
        inside.text("question"), inside.text("passages")
    else:
        row.inside(info)  # refuses what is no object
    return {KEY: source_id, "task": task, "corpus": row.text("source", empty_ok=True), "source_info": info}


def prompt_values(row: Row, nulls: str) -> dict[str, str]:
    """Gives the values of a source for its task's prompt.

    Args:
        nulls: KEEP shows empty fields as `null`, which models take for "no"; DROP leaves them out.
    """
    info = row["source_info"]
    if row["task"] == QA:
        return {"question": info["question"], "passages": info["passages"]}
    if row["task"] == SUMMARY:
        words = max(1, min(MAX_WORDS, len(info.split()) // WORD_RATIO))
        return {"max_words": str(words), "document": info}
    shown = without_nulls(info) if nulls == DROP else info
    return {"data": json.dumps(shown, ensure_ascii=False, indent=1)}


def without_nulls(value: Any) -> Any:
    """Removes the fields of an object that are null, and objects that have no others."""
    if isinstance(value, Mapping):
        kept = {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
        return {key: inner for key, inner in kept.items() if not (inner == {} and value[key] != {})}
    return [without_nulls(inner) for inner in value if inner is not None] if isinstance(value, list) else value
