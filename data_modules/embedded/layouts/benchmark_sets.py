"""Benchmarks of detectors in their official layouts, with answers to the embedded sources."""

from collections.abc import Iterator
from pathlib import Path

from data_modules.datasets.claim_sets import AGGREFACT_SETS, TRUE_FILES
from data_modules.embedded.layouts.common import NumRows, sizes, write_csv
from data_modules.embedded.layouts.span_layout import Answer, RagSource, rag_sources
from faithkit.files.jsonl import write_jsonl


def _answers(num_rows: NumRows, splits: tuple[str, ...], seed: int) -> Iterator[tuple[str, RagSource, Answer]]:
    for split, size in sizes(num_rows, splits).items():
        for source in rag_sources(split, size, seed):
            yield from ((split, source, answer) for answer in source.answers)


def write_aggrefact(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes LLM-AggreFact's dev and test rows as JSON lines; sources take turns among its sets."""
    for split in sizes(num_rows, ("validation", "test")):
        rows = [
            {
                "dataset": AGGREFACT_SETS[source.number % len(AGGREFACT_SETS)],
                "doc": " ".join(source.passages),
                "claim": answer.text,
                "label": int(not answer.marks),
                "contamination_identifier": "",
            }
            for _, source, answer in _answers(num_rows, (split,), seed)
        ]
        write_jsonl(folder / f"{'dev' if split == 'validation' else split}.jsonl", rows)
    return folder


def write_true(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes TRUE: a file for each set, with the number of each row as pandas writes it; sources take turns."""
    files: dict[str, list[tuple[str, ...]]] = {name: [] for name in TRUE_FILES}
    for _, source, answer in _answers(num_rows, ("test",), seed):
        rows = files[list(TRUE_FILES)[source.number % len(TRUE_FILES)]]
        rows.append((str(len(rows)), " ".join(source.passages), answer.text, str(int(not answer.marks))))
    for name, rows in files.items():
        if rows:
            write_csv(folder / f"{name}.csv", rows, header=("", "grounding", "generated_text", "label"))
    return folder
