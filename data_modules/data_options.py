"""The options of the DataModule, and names that configurations use."""

from dataclasses import dataclass

USER_TABLE = "pairs"  # the name of the dataset of users' tables
# Kinds of negatives (`data_modules.negatives`).
ORIGINAL, ENTITY_SWAP, VERBATIM, OTHER = MADE = ("original", "entity_swap", "verbatim", "other")
GIVEN = "given"  # by the file, as FaithDial's `negative_samples`
GROUP, ROWS = SPLIT_BY = ("group", "rows")  # what is divided into training, validation and test
NEGATIVE_KINDS = (*MADE, GIVEN)
NUM_READERS, NUM_BUFFER_ROWS = 8, 16_384  # enough for batches to mix well, and small in memory


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """How batches are made from the datasets of a run.

    Args:
        batch_size: Examples of a step over all processes, so that results do not depend on how many there are.
        max_tokens: Most tokens of a step over all processes, padding counted.
        eval_max_tokens: The same for validation and test, per process.
        num_epochs: Training passes, one after the other as a single sequence of steps.
        num_workers: Processes that prepare batches.
        on_bad_row: `stop` at the first bad row, or `skip` and count bad rows.
        seed: Determines the order of the batches.
        streaming: Reads the one training dataset as training goes on and never holds it; validation and test sets are
            cached.
        num_readers: Parts that an epoch of streamed shards is cut into (`streaming.Readers`).
        num_buffer_rows: Rows of a stream that are encoded and shuffled at a time.
    """

    batch_size: int | None = 32
    max_tokens: int | None = None
    eval_max_tokens: int = 16_384
    num_epochs: int = 1
    num_workers: int = 0
    on_bad_row: str = "stop"
    seed: int = 0
    streaming: bool = False
    num_readers: int = NUM_READERS
    num_buffer_rows: int = NUM_BUFFER_ROWS
