"""Hypothesis strategies that damage files and values, and the rule for what damage may lead to."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from faithkit.errors import UserError

CPU_SECONDS = 60  # of one example, the first of which imports and makes what all need
# Values in places where others are expected.
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 5, 1e9, -1e-9, float("nan"), float("inf"), 2**70, "", " ", "abc", "5", "null", "\x00",
    "\ud800", "é" * 300, [], [None], [[]], {}, {"a": 1}, {"": None}, [{"a": [1, 2]}],
)  # fmt: skip
PIECES = (b"\x00", b"\xff\xfe", b"\n", b'"', b"{", b"\xe2\x80\xa8")


def share(part: int) -> settings:
    """Takes this part of the profile's number of examples, for what takes long."""
    return settings(max_examples=max(5, settings.default.max_examples // part))


@st.composite
def damaged_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """Flips a bit, cuts, empties, zeroes, doubles, drops, overwrites or inserts a part of a file."""
    if not data:
        return draw(st.binary(min_size=1, max_size=16))
    start = draw(st.integers(0, len(data) - 1))
    end = min(len(data), start + draw(st.sampled_from((1, 2, 8, 64, 512))))
    kind = draw(st.sampled_from(("flip", "cut", "empty", "zero", "double", "drop", "overwrite", "insert")))
    match kind:
        case "flip":
            return data[:start] + bytes([data[start] ^ 1 << draw(st.integers(0, 7))]) + data[start + 1 :]
        case "cut":
            return data[:start]
        case "empty":
            return b""
        case "zero":
            return bytes(len(data))
        case "double":
            return data[:end] + data[start:]
        case "drop":
            return data[:start] + data[end:]
        case "overwrite":
            return data[:start] + draw(st.binary(min_size=end - start, max_size=end - start)) + data[end:]
    return data[:start] + draw(st.sampled_from(PIECES)) + data[start:]


@st.composite
def damaged_value(draw: st.DrawFn, value: Any) -> Any:
    """Damages plain data in one place: an odd value, a renamed or missing key, an item twice or not at all."""
    path = draw(st.sampled_from(list(_paths(value))))
    if not path:
        return draw(st.sampled_from(ODD_VALUES))
    changed = json.loads(json.dumps(value))
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    key, kind = path[-1], draw(st.sampled_from(("odd", "odd", "drop", "other")))
    if kind == "odd":
        parent[key] = draw(st.sampled_from(ODD_VALUES))
    elif kind == "drop":
        del parent[key]
    elif isinstance(parent, dict):
        parent[f"{key}{draw(st.sampled_from(('s', '_', ' ')))}"] = parent.pop(key)
    else:
        parent.insert(key, parent[key])
    return changed


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths(inner, (*path, key))


@st.composite
def damaged_json(draw: st.DrawFn, data: bytes) -> bytes:
    """Damages a JSON file's bytes, or one of its values."""
    if draw(st.booleans()):
        return draw(damaged_bytes(data))
    return json.dumps(draw(damaged_value(json.loads(data)))).encode()


@contextmanager
def used_or_explained() -> Iterator[None]:
    """Lets the body refuse its input with an explanation; any other error fails, and so does a hang."""

    def stop(*_: object) -> None:
        raise AssertionError(f"more than {CPU_SECONDS} CPU-seconds")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    except UserError as error:
        assert len(str(error).splitlines()) <= 5, error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def new_folder() -> Iterator[Path]:
    """Makes an empty folder for one example."""
    with TemporaryDirectory(prefix="faithkit-damage-") as name:
        yield Path(name)
