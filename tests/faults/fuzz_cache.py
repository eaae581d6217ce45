"""The cache of encodings: whatever happens to an entry, the same encodings are given, and no damage ends a process."""

import os
import random
import shutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from data_modules.datasets.nli import Snli
from data_modules.embedded.layouts import WRITERS
from data_modules.encoding.cache import load_encoded, read_rows
from data_modules.encoding.encoder import EncodedSplit
from data_modules.encoding.pairs import PairEncoder
from data_modules.encoding.ragged import Ragged
from data_modules.encoding.tokens import load_tokenizer
from tests.faults.campaign import Campaign, Wrong
from tests.faults.mutations import mutate_bytes
from tests.faults.races import FORK
from tests.running import temporary_folder
from tests.tiny import write_bert


@contextmanager
def home(folder: Path) -> Iterator[None]:
    before = os.environ.get("FAITHKIT_HOME")
    os.environ["FAITHKIT_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["FAITHKIT_HOME"]
        else:
            os.environ["FAITHKIT_HOME"] = before


def content(encoded: EncodedSplit) -> tuple[Any, ...]:
    columns = {n: (c.values.tolist(), c.offsets.tolist()) if isinstance(c, Ragged) else c.tolist()
               for n, c in encoded.columns.items()}  # fmt: skip
    examples = [example.to_dict() for example in encoded.examples(range(len(encoded)))]
    return columns, encoded.groups.tolist(), examples, encoded.counts, encoded.rejects, encoded.fingerprint


@cache
def template() -> tuple[Snli, PairEncoder, Path, tuple[Any, ...]]:
    """A corpus, an encoder, a cache with two entries (train and test) and what the first one holds."""
    root = temporary_folder("faithkit-cache-")
    source = Snli(path=str(WRITERS["snli"](root / "snli", 30)))
    encoder = PairEncoder(tokenizer=load_tokenizer(str(write_bert(root / "bert"))), max_length=64)
    with home(root / "home"):
        load_encoded(source, "test", encoder)
        return source, encoder, root / "home", content(load_encoded(source, "train", encoder))


def damage_entry(rng: random.Random, folder: Path) -> None:
    """Damages an entry once or twice: a file's bytes, a file that is gone, a folder, or from another entry."""
    for _ in range(rng.choice((1, 1, 2))):
        file = rng.choice(sorted(path for path in folder.iterdir() if path.is_file()) or [folder / "rows.arrow"])
        kind = rng.randrange(10)
        if kind == 0:
            file.unlink(missing_ok=True)
        elif kind == 1:
            file.unlink(missing_ok=True)
            file.mkdir()
        elif kind == 2:
            others = [other / file.name for other in folder.parent.iterdir() if other.is_dir() and other != folder]
            shutil.copy(others[0], file)
        elif file.is_file():
            file.write_bytes(mutate_bytes(file.read_bytes(), rng))


def attempt(rng: random.Random, folder: Path) -> None:
    source, encoder, kept, expected = template()
    shutil.copytree(kept, folder / "home")
    entries = sorted(path for path in (folder / "home" / "encodings").iterdir() if path.is_dir())
    damage_entry(rng, rng.choice(entries))
    with home(folder / "home"):
        for _ in range(2):  # the second launch reads what the first one mended
            if content(load_encoded(source, "train", encoder)) != expected:
                raise Wrong("other encodings")


def attempt_without_checksums(rng: random.Random, folder: Path) -> None:
    """A file that is too large for a checksum: its values may differ, but reading it must not end the process."""
    kept = template()[2]
    file = rng.choice(sorted((kept / "encodings").glob("*/rows.arrow")))
    data = file.read_bytes()
    for _ in range(rng.choice((1, 2, 8))):
        data = mutate_bytes(data, rng) if rng.random() < 0.5 else flip(data, rng)
    (folder / "rows.arrow").write_bytes(data)
    process = FORK.Process(target=read_all, args=(folder / "rows.arrow",))
    process.start()
    process.join(20)
    if process.exitcode is None:
        process.kill()
    if process.exitcode != 0:
        raise Wrong(f"reading it ended with {process.exitcode}")


def flip(data: bytes, rng: random.Random) -> bytes:
    """Flips one bit; above all of the file's beginning and end, which say where everything is."""
    if not data:
        return data
    near = min(len(data), 1500)
    place = rng.choice((rng.randrange(near), len(data) - 1 - rng.randrange(near), rng.randrange(len(data))))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def read_all(path: Path) -> None:
    try:
        rows = read_rows(path)
        for column in rows.columns.values():
            every = np.arange(len(column))
            _ = column.take(every) if isinstance(column, Ragged) else column[every].sum()
        for record in rows.records:
            with suppress(UnicodeDecodeError):
                record.as_py()
    except (ValueError, OSError):
        pass
    except BaseException:
        traceback.print_exc()
        sys.exit(3)


CAMPAIGNS = [
    Campaign("cached encodings", attempt, share=0.5),
    Campaign("cached encodings above the checksum's limit", attempt_without_checksums, share=0.2),
]
