"""Reads a GGUF file: its metadata, and its tensors as float32.

transformers reads GGUF too, but needs two more packages for it (gguf, accelerate), drops the digits' rule of
SmolLM's tokenizer and gives a model that refuses to be saved. The three kinds of blocks in our one file are
short to undo.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.weights.converters.hf_folder import Tensors

BLOCK = 32  # weights in one quantized block
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def read_gguf(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Reads the metadata by key, and the tensors by GGUF's names, shaped (out, in) as PyTorch has them."""
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
    """A position in the header that moves behind what is read."""

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


# ggml's number of the kind: bytes in a block of 32, and how to read such blocks.
DECODERS: dict[int, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    0: (BLOCK * 4, _f32),
    3: (20, _q4_1),
    8: (34, _q8_0),
}
