"""Wrong calls of Critic, Tagger, Generator and Judge: keywords over those of a right call, and what to blame."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

NAN = float("nan")
NO_TEXT: list[Any] = [
    None, 5, 1.5, NAN, True, b"bytes", {}, {"text": "a"}, {"a"}, "", " \n", [], ["a", 5], ["a", None], ["a", NAN],
    ["a", b"b"], ["a", " "], [["a"]], np.array([["a"]]), np.array("a"), pd.DataFrame({"a": ["b"]}),
    pd.Series(["a", None]), re.compile("a"), object, Path("a"), ..., range(3),
]  # fmt: skip
NO_TURNS: list[Any] = [5, NAN, True, b"a", {"text": "a"}, [5], [None], [b"a"], [{}], [{"text": 5}], [("a", 5)],
    [{"role": "user"}], [(5, "a")], [["a", "b"]], np.array([["a"]]), {"a"}]  # fmt: skip
NO_LIST: list[Any] = [None, 5, "abc", b"abc", {"a": "b"}, {"a"}, np.array("a"), pd.DataFrame({"a": ["b"]})]
NO_SHARE: list[Any] = [-0.1, 1.1, NAN, float("inf"), "0.5", True, [0.5], 2**70, 10**400, b"1", {}]
NO_COUNT: list[Any] = [0, -4, 2.5, 64.0, "64", NAN, True, [64], 2**40, {}]
NO_FLAG: list[Any] = [None, "no", 1, NAN, []]
NO_PATH: list[Any] = [None, 5, b"runs", "", "  ", ["runs"], {"path": "runs"}, "a\0b", "\ud800", "a" * 5000, NAN]
NO_DEVICE: list[Any] = ["cuda:7", "tpu", 5, "", "cpu:x", "meta", ["cpu"], b"cpu", NAN, "gpu", True]
NO_WORD: list[Any] = ["fp8", "bf-16", "", None, 32, ["bf16"], b"bf16", NAN]


@dataclass(frozen=True)
class Call:
    """One wrong call.

    Args:
        owner: critic, tagger, generator or judge.
        method: Of the class (load) or of a loaded model.
        change: Keywords that replace those of a right call.
        blamed: The name that the error must have.
    """

    owner: str
    method: str
    change: dict[str, Any]
    blamed: str

    def __str__(self) -> str:
        name, value = next(iter(self.change.items()))
        return f"{self.owner}.{self.method} {name}={repr(value).encode('unicode_escape').decode()[:40]}"


def of(owner: str, method: str, blamed: str, values: list[Any]) -> Iterator[Call]:
    """Puts each value in the place of the argument."""
    return (Call(owner, method, {blamed: value}, blamed) for value in values)


def loads(owner: str) -> Iterator[Call]:
    """Wrong paths, devices, precisions and sizes."""
    yield from of(owner, "load", "path", NO_PATH)
    yield from of(owner, "load", "device", NO_DEVICE)
    yield from of(owner, "load", "precision", NO_WORD)
    yield from of(owner, "load", "batch_size" if owner == "generator" else "batch_tokens", NO_COUNT)
    if owner in ("critic", "tagger"):
        yield from of(owner, "load", "max_windows", NO_COUNT)
    yield Call(owner, "load", {"devise": "cpu"}, "devise")


def detections(owner: str, method: str) -> Iterator[Call]:
    """Wrong calls of `score` and `predict`."""
    lists = {"knowledge": ["a", "b"], "response": ["a", "b"]}
    yield from of(owner, method, "knowledge", [value for value in NO_TEXT if not isinstance(value, range)])
    yield from of(owner, method, "response", [v for v in NO_TEXT if isinstance(v, str) or not isinstance(v, list)])
    yield from of(owner, method, "history", NO_TURNS)
    yield from of(owner, method, "threshold", NO_SHARE)
    if owner == "critic":
        yield from of(owner, method, "abstain_at", NO_SHARE)
    for change, blamed in [
        ({"knowledge": ["a"] * 3}, "knowledge"),
        ({"response": ["a"] * 3}, "response"),
        ({"response": []}, "response"),
        ({"response": ["a", 5]}, "response"),
        ({"response": ["a", ["b"]]}, "response"),
        ({"response": pd.Series(["a", NAN])}, "response"),
        ({"response": np.array([1, 2])}, "response"),
        ({"knowledge": "ab"}, "knowledge"),
        ({"knowledge": None}, "knowledge"),
        ({"knowledge": {0: "a", 1: "b"}}, "knowledge"),
        ({"knowledge": ["a", ["b", 5]]}, "knowledge"),
        ({"knowledge": ["a", []]}, "knowledge"),
        ({"history": "ab"}, "history"),
        ({"history": [["a"]]}, "history"),
        ({"history": [["a"], 5]}, "history"),
        ({"history": [["a"], [5]]}, "history"),
    ]:
        yield Call(owner, method, lists | change, blamed)
    yield Call(owner, method, {"knowlege": "a"}, "knowlege")
    yield Call(owner, method, {"treshold": 0.5}, "treshold")
    yield from streams(owner)
    yield from of(owner, "predict_examples", "examples", [None, 5, "abc", ["a"], [{"id": "1"}], {}, [None]])
    yield from of(owner, "predict_examples", "progress", NO_FLAG)


def streams(owner: str) -> Iterator[Call]:
    """Wrong calls of a detector's `stream`."""
    wrong = [["a", 5], ["a", None], ["a", " "], ["a"], pd.Series(["a", None])]
    for name in ("knowledge", "response"):
        yield from of(owner, "stream", name, [*NO_LIST, *wrong])
    yield from of(owner, "stream", "history", ["ab", 5, [5, 5], [["a"]], [["a"], [5]]])
    yield from of(owner, "stream", "threshold", NO_SHARE)
    yield from of(owner, "stream", "progress", NO_FLAG)
    yield Call(owner, "stream", {"batch": 3}, "batch")


def dialogues() -> Iterator[Call]:
    """Wrong calls of `predict_dialogue`."""
    yield from of("tagger", "predict_dialogue", "knowledge", [v for v in NO_TEXT if not isinstance(v, range)])
    yield from of("tagger", "predict_dialogue", "turns", [None, "abc", *NO_TURNS, [], ["a"], [("assistant", " ")]])


def generations() -> Iterator[Call]:
    """Wrong calls of Generator."""
    no_decoding = [{}, {"strategy": "beam"}, "beam", 5, [], NAN]
    no_names = ["high-overlap", 5, [5], [None], {"a": 1}, True, b"a", ["low-overlap"]]
    many = {"knowledge": ["a", "b"], "history": [["a"], ["b"]]}
    yield from of("generator", "load", "engine", NO_WORD)
    yield from of("generator", "load", "max_length", [*NO_COUNT, 1, 5])
    yield from of("generator", "load", "memory_fraction", NO_SHARE)
    yield from of("generator", "reply", "knowledge", NO_TEXT)
    yield from of("generator", "reply", "history", [None, "abc", "", [], [" "], ["a", NAN], *NO_TURNS[:-3]])
    for change, blamed in [
        ({"knowledge": "ab"}, "knowledge"),
        ({"knowledge": None}, "knowledge"),
        ({"knowledge": ["a"] * 3}, "knowledge"),
        ({"knowledge": ["a", 5]}, "knowledge"),
        ({"history": [["a"], []]}, "history"),
        ({"history": [["a"], "b"]}, "history"),
        ({"history": [["a"], [" "]]}, "history"),
        ({"history": [["a"]]}, "history"),
    ]:
        yield Call("generator", "reply", many | change, blamed)
    for method in ("reply", "stream", "predict_examples", "candidates"):
        yield from of("generator", method, "decoding", no_decoding)
        yield from of("generator", method, "control", no_names)
        yield Call("generator", method, {"decodin": None}, "decodin")
    yield from of("generator", "stream", "chunk_size", NO_COUNT)
    yield from of("generator", "stream", "progress", NO_FLAG)
    no_rows = [None, 5, "abc", {"knowledge": "a"}, ["a"], [None], [{}], [{"knowledge": "a"}]]
    yield from of("generator", "stream", "rows", no_rows)
    for row, blamed in [
        ({"knowledge": 5, "history": ["a"]}, "knowledge"),
        ({"knowledge": "a", "history": "a"}, "history"),
        ({"knowledge": "a", "history": [5]}, "history"),
        ({"knowledge": "a", "history": ["a"], "id": None}, "id"),
        ({"knowledge": "a", "history": ["a"], "id": ""}, "id"),
        ({"knowledge": "a", "history": ["a"], "id": ["x"]}, "id"),
    ]:
        yield Call("generator", "stream", {"rows": [row]}, blamed)
    for method in ("predict_examples", "candidates"):
        yield from of("generator", method, "examples", [None, 5, "abc", ["a"], [{"id": "1"}], {}])


def judgements() -> Iterator[Call]:
    """Wrong calls of Judge, which takes an engine in the place of a path, and no knowledge."""
    yield from of("judge", "load", "model", [*NO_PATH, range(3), 1.5, ...])
    yield from of("judge", "load", "device", NO_DEVICE)
    for name in ("precision", "engine"):
        yield from of("judge", "load", name, NO_WORD)
    yield from of("judge", "load", "ask", [word for word in NO_WORD if word is not None])
    for name in ("batch_size", "batch_tokens", "max_length", "max_new_tokens", "num_samples"):
        yield from of("judge", "load", name, NO_COUNT)
    yield Call("judge", "load", {"num_samples": None}, "num_samples")
    for name in ("prompts", "examples"):
        yield from of("judge", "load", name, [b"a", "", ["a"], NAN, {}, True])
    yield Call("judge", "load", {"devise": "cpu"}, "devise")
    knowledge = [v for v in NO_TEXT if not (v is None or isinstance(v, range | str) or (isinstance(v, list) and not v))]
    yield from of("judge", "judge", "knowledge", knowledge)
    yield from of("judge", "judge", "response", [v for v in NO_TEXT if isinstance(v, str) or not isinstance(v, list)])
    yield from of("judge", "judge", "history", NO_TURNS)
    yield from of("judge", "judge", "progress", NO_FLAG)
    lists = {"knowledge": ["a", "b"], "response": ["a", "b"]}
    for change, blamed in [
        ({"knowledge": ["a"] * 3}, "knowledge"),
        ({"knowledge": "ab"}, "knowledge"),
        ({"knowledge": {0: "a", 1: "b"}}, "knowledge"),
        ({"knowledge": ["a", ["b", 5]]}, "knowledge"),
        ({"knowledge": ["a", 5]}, "knowledge"),
        ({"response": []}, "response"),
        ({"response": ["a", 5]}, "response"),
        ({"response": ["a", ["b"]]}, "response"),
        ({"response": pd.Series(["a", NAN])}, "response"),
        ({"response": np.array([1, 2])}, "response"),
        ({"history": "ab"}, "history"),
        ({"history": [["a"]]}, "history"),
        ({"history": [["a"], 5]}, "history"),
        ({"history": [["a"], [5]]}, "history"),
    ]:
        yield Call("judge", "judge", lists | change, blamed)
    yield Call("judge", "judge", {"knowlege": "a"}, "knowlege")
    for method in ("predict_examples", "judgements"):
        yield from of("judge", method, "examples", [None, 5, "abc", ["a"], [{"id": "1"}], {}, [None]])
        yield from of("judge", method, "progress", NO_FLAG)


CALLS = [
    *loads("critic"), *detections("critic", "score"),
    *loads("tagger"), *detections("tagger", "predict"), *dialogues(),
    *loads("generator"), *generations(),
    *judgements(),
]  # fmt: skip
