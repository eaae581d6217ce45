"""Readers of quantized weights: GGUF, and ONNX without the onnx package.

They read tensors as numbers with NumPy; nothing in a file is imported, unpickled or executed. transformers can read
GGUF too, but needs two more packages for it (gguf, accelerate), loses the digit rule of SmolLM's tokenizer, and returns
a model that cannot be saved. Of ONNX, only the parts of protobuf's wire format that hold weights are read.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = dict[str, NDArray[Any]]

BLOCK = 32  # weights in a quantized GGUF block
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def read_gguf(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Reads the metadata by key, and the tensors by GGUF's names, with PyTorch's shapes (out, in)."""
    data = path.read_bytes()
    cursor = _Cursor(data)
    assert cursor.take(4) == b"GGUF", f"not a GGUF file: {path}"
    version, num_tensors, num_keys = cursor.unpack("I"), cursor.unpack("Q"), cursor.unpack("Q")
    assert version in (2, 3), f"GGUF version {version}"
    metadata = {cursor.string(): cursor.value(cursor.unpack("I")) for _ in range(num_keys)}
    infos = [cursor.tensor_info() for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", 32)
    start = -(-cursor.offset // alignment) * alignment  # the tensors begin at the next multiple
    tensors: Tensors = {}
    for name, shape, kind, offset in infos:
        block_bytes, decode = DECODERS[kind]
        length = int(np.prod(shape)) // BLOCK * block_bytes
        blocks = np.frombuffer(data, np.uint8, count=length, offset=start + offset).reshape(-1, block_bytes)
        tensors[name] = decode(blocks).astype(np.float32).reshape(shape)
    return metadata, tensors


class _Cursor:
    """A position in the header that advances as values are read."""

    def __init__(self, data: bytes):
        self.data, self.offset = data, 0

    def take(self, length: int) -> bytes:
        self.offset += length
        return self.data[self.offset - length : self.offset]

    def unpack(self, kind: str) -> Any:
        (value,) = struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))
        return value

    def string(self) -> str:
        return self.take(self.unpack("Q")).decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element, length = self.unpack("I"), self.unpack("Q")
            return [self.value(element) for _ in range(length)]
        return self.unpack(SCALARS[kind])

    def tensor_info(self) -> tuple[str, list[int], int, int]:
        name = self.string()
        dims = [self.unpack("Q") for _ in range(self.unpack("I"))]
        shape = dims[::-1]  # GGUF counts dimensions from the innermost
        return name, shape, self.unpack("I"), self.unpack("Q")


def _f32(blocks: np.ndarray) -> np.ndarray:
    return blocks.view("<f4")


def _q4_1(blocks: np.ndarray) -> np.ndarray:
    """Decodes Q4_1: a float16 scale and minimum, then 32 four-bit values, first all low halves, then all high."""
    scale, minimum = blocks[:, 0:2].copy().view("<f2"), blocks[:, 2:4].copy().view("<f2")
    halves = blocks[:, 4:]
    values = np.concatenate([halves & 0x0F, halves >> 4], axis=1)  # (blocks, 32)
    return values * scale.astype(np.float32) + minimum.astype(np.float32)


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    """Decodes Q8_0: a float16 scale, then 32 signed bytes."""
    scale = blocks[:, 0:2].copy().view("<f2")
    return blocks[:, 2:].view(np.int8) * scale.astype(np.float32)


# By ggml's type number: the bytes in a block of 32 weights, and the function that decodes blocks.
DECODERS: dict[int, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    0: (BLOCK * 4, _f32),
    3: (20, _q4_1),
    8: (34, _q8_0),
}


# Field numbers of onnx.proto: ModelProto.graph 7; GraphProto.node 1, initializer 5; NodeProto.input 1, name 3;
# TensorProto.dims 1, data_type 2, float_data 4, int32_data 5, name 8, raw_data 9.
DTYPES = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8"}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Node:
    """An operation: the exporter's path of its module, and the names of its inputs."""

    name: str
    inputs: tuple[str, ...]


def read_onnx(path: Path) -> tuple[Tensors, list[Node]]:
    """Reads the stored tensors by name, still quantized, and the graph's nodes in order."""
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
    """Decodes tensors: floats unchanged, and `X_quantized` as X = (X_quantized - X_zero_point) * X_scale."""
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
    """Reads an integer in groups of seven bits, the lowest first, and the position after it."""
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
