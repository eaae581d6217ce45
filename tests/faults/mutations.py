"""Seeded damage to files and values."""

import random
from collections.abc import Iterator
from typing import Any

# Values that stand where others are expected.
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 5, 1e9, -1e-9, float("nan"), float("inf"), 2**70, "", " ", "abc", "5", "null", "\x00",
    "\ud800", "é" * 300, [], [None], [[]], {}, {"a": 1}, {"": None}, [{"a": [1, 2]}],
)  # fmt: skip


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Damages a file once: bits flipped, cut, emptied, zeroed, a part doubled, dropped, overwritten or inserted."""
    if not data:
        return rng.randbytes(rng.randint(1, 16))
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice((1, 2, 8, 64, 512)))
    match rng.randrange(8):
        case 0:
            return data[:start] + bytes([data[start] ^ 1 << rng.randrange(8)]) + data[start + 1 :]
        case 1:
            return data[:start]
        case 2:
            return b""
        case 3:
            return bytes(len(data))
        case 4:
            return data[:end] + data[start:end] + data[end:]
        case 5:
            return data[:start] + data[end:]
        case 6:
            return data[:start] + rng.randbytes(end - start) + data[end:]
        case _:
            return data[:start] + rng.choice((b"\x00", b"\xff\xfe", b"\n", b'"', b"{", b"\xe2\x80\xa8")) + data[start:]


def mutate_value(value: Any, rng: random.Random) -> Any:
    """Damages plain data (JSON, YAML) in one place: an odd value, a renamed or dropped key, an item twice or never."""
    place = rng.choice(list(_places(value)))
    return _changed(value, place, rng)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from _places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from _places(value[index], (*path, index))


def _changed(value: Any, path: tuple[Any, ...], rng: random.Random) -> Any:
    if not path:
        return rng.choice(ODD_VALUES)
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    key = path[0]
    if len(path) > 1 or rng.random() < 0.6:
        copy[key] = _changed(value[key], path[1:], rng)
    elif isinstance(copy, dict):
        kept = copy.pop(key)
        if rng.random() < 0.5:
            copy[f"{key}{rng.choice(('s', '_', ' '))}"] = kept
    elif rng.random() < 0.5:
        copy.insert(key, copy[key])
    else:
        del copy[key]
    return copy
