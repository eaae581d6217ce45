"""Reads the weights of an ONNX file without the onnx package: protobuf's wire format, as far as needed.

The field numbers are those of `onnx.proto`: ModelProto.graph 7; GraphProto.node 1, initializer 5;
NodeProto.input 1, name 3; TensorProto.dims 1, data_type 2, float_data 4, int32_data 5, name 8, raw_data 9.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from faithkit.weights.converters.hf_folder import Tensors

DTYPES = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8"}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Node:
    """An operation: the exporter's path of the module it came from, and the names of what it reads."""

    name: str
    inputs: tuple[str, ...]


def read_onnx(path: Path) -> tuple[Tensors, list[Node]]:
    """Reads the stored tensors by name, as they are stored, and the graph's nodes in order."""
    tensors: Tensors = {}
    nodes: list[Node] = []
    for number, graph in _fields(memoryview(path.read_bytes())):
        if number != 7 or isinstance(graph, int):
            continue
        for kind, message in _fields(graph):
            if isinstance(message, int):
                continue
            if kind == 1:
                nodes.append(_node(message))
            elif kind == 5:
                name, tensor = _tensor(message)
                tensors[name] = tensor
    return tensors, nodes


def dequantized(tensors: Tensors) -> Tensors:
    """Decodes tensors: float ones as they are, and `X_quantized` as X = (X_quantized - X_zero_point) * X_scale."""
    plain: Tensors = {}
    for name, tensor in tensors.items():
        base = name.removesuffix("_quantized")
        if base != name:
            shifted = tensor.astype(np.float32) - tensors[f"{base}_zero_point"].astype(np.float32)
            plain[base] = shifted * tensors[f"{base}_scale"]
        elif tensor.dtype == np.float32 and not name.endswith("_scale"):
            plain[name] = tensor
    return plain


def _node(message: memoryview) -> Node:
    name, inputs = "", []
    for number, value in _fields(message):
        if isinstance(value, int):
            continue
        if number == 1:
            inputs.append(bytes(value).decode())
        elif number == 3:
            name = bytes(value).decode()
    return Node(name=name, inputs=tuple(inputs))


def _tensor(message: memoryview) -> tuple[str, np.ndarray]:
    dims: list[int] = []
    dtype, name = "", ""
    integers: list[int] = []
    packed: memoryview | None = None
    for number, value in _fields(message):
        if isinstance(value, int):
            if number == 1:
                dims.append(value)
            elif number == 2:
                dtype = DTYPES[value]
        elif number == 1:
            dims += _varints(value)
        elif number == 8:
            name = bytes(value).decode()
        elif number == 5:  # small integers, one varint each
            integers = _varints(value)
        elif number in (4, 9):
            packed = value
    if packed is not None:
        return name, np.frombuffer(packed, dtype=dtype).reshape(dims)
    return name, np.array(integers, dtype=dtype).reshape(dims)


def _fields(message: memoryview) -> "Iterator[tuple[int, memoryview | int]]":
    """Reads a message's fields: number and value, bytes or an integer."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == VARINT:
            value, position = _varint(message, position)
            yield key >> 3, value
            continue
        if kind == BYTES:
            length, position = _varint(message, position)
        else:
            length = {FIXED64: 8, FIXED32: 4}[kind]
        yield key >> 3, message[position : position + length]
        position += length


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """Reads an integer in groups of seven bits, the lowest first, and the position behind it."""
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value - (1 << 64) if value >= 1 << 63 else value), position


def _varints(packed: memoryview) -> list[int]:
    values, position = [], 0
    while position < len(packed):
        value, position = _varint(packed, position)
        values.append(value)
    return values
