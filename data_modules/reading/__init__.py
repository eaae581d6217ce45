"""Files to checked rows, rows to checked records: what every dataset shares.

The door for datasets: a dataset's file imports these names from here alone.
"""

# ruff: noqa: F401 (a door gives names that it does not use)
from data_modules.reading.dataset import SPLITS, Records, Source, WrappedSource, read_examples
from data_modules.reading.fields import (
    ANY,
    SEEKER,
    WIZARD,
    YES_NO,
    Names,
    alternate,
    chosen,
    flag,
    identifier,
    last_turn,
    locate_span,
    read_history,
    read_spans,
    read_token_spans,
    text_group,
    whole_number,
)
from data_modules.reading.files import HUB, File, HubSplit, Patterns, find_files, log_missing, rows_of
from data_modules.reading.rows import BadRow, ReadReport, Row, check_text, read_rows, reading
