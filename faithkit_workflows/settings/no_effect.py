"""Keys that are given and do nothing beside the others: said, since each is somebody's wish."""

from collections.abc import Iterable, Iterator, Set

from faithkit.embedded_name import EMBEDDED
from faithkit_workflows.settings.data import Data

# Of the block `data` when examples are answered and nothing is trained.
TRAINING_ALONE = (
    *("validation_fraction", "test_fraction", "fold", "num_folds", "exclude", "negatives", "batch_size"),
    *("max_tokens", "eval_max_tokens", "num_workers", "streaming"),
    *("num_readers", "num_buffer_rows", "first"),
)
# Of evaluate.py, where no generator writes: the detector's benchmarks, or given responses.
GENERATORS_ALONE = ("max_length", "decoding")


def without_effect(given: Set[str], keys: Iterable[str], why: str) -> Iterator[str]:
    """Yields a line for each given key that is one of these, or lies in one of these blocks."""
    blocks = set(keys)
    for key in sorted(given):
        if any(key == block or key.startswith(f"{block}.") for block in blocks):
            yield f"{key} has no effect {why}"


def of_data(given: Set[str], data: Data) -> Iterator[str]:
    """Yields the keys of `data` without effect in a training."""
    parts = data.parts.values() if isinstance(data.parts, dict) else data.parts
    if not any(part.path == EMBEDDED or (part.model_extra or {}).get("audit_path") == EMBEDDED for part in parts):
        yield from without_effect(given, ["data.embedded_rows"], "on files: data.path=embedded reads so many rows")
    if not data.streaming:
        yield from without_effect(given, ["data.num_readers", "data.num_buffer_rows"], "without data.streaming=true")
    if data.fold is None:
        yield from without_effect(given, ["data.num_folds"], "without data.fold")
