"""granite-embedding-30m-english: an int8 pack with RoBERTa's tokenizer, to a RobertaModel without a pooler.

The pack: the magic, the JSON header's length as a little-endian u64, the header, the tokenizer's JSON, then
the tensors in the header's order, with no gaps.
"""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.weights.converters.hf_folder import Tensors, write_config, write_tensors, write_tokenizer

VERSION = 1

MAGIC = b"HMSEMB01"
PARAMETERS = {"w": "weight", "b": "bias"}
EMBEDDINGS = {
    "word_emb": "embeddings.word_embeddings.weight",
    "pos_emb": "embeddings.position_embeddings.weight",
    "type_emb": "embeddings.token_type_embeddings.weight",
    "emb_ln.w": "embeddings.LayerNorm.weight",
    "emb_ln.b": "embeddings.LayerNorm.bias",
}
LAYER = {
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "f1": "intermediate.dense",
    "f2": "output.dense",
    "fln": "output.LayerNorm",
}


def convert(source: Path, target: Path) -> None:
    """Write a RobertaModel's folder."""
    (pack,) = source.glob("*.hmsemb")
    header, tokenizer, tensors = read_pack(pack.read_bytes())
    write_tensors(target, rename(tensors))
    _write_config(target, header["arch"])

    from transformers import AddedToken

    write_tokenizer(
        target,
        tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token=AddedToken("<mask>", lstrip=True, special=True, normalized=False),
        model_max_length=header["meta"]["max_length"],
        model_input_names=["input_ids", "attention_mask"],
    )


def read_pack(data: bytes) -> tuple[dict[str, Any], str, Tensors]:
    """Reads the header, the tokenizer's JSON, and the tensors as float32 by the pack's own names."""
    assert data[:8] == MAGIC, f"not a pack: it starts with {data[:8]!r}"
    (length,) = struct.unpack_from("<Q", data, 8)
    header = json.loads(data[16 : 16 + length])
    start = 16 + length
    tokenizer = data[start : start + header["tokenizer_len"]].decode("utf-8")
    start += header["tokenizer_len"]
    tensors: Tensors = {}
    for entry in header["tensors"]:
        blob = data[start : start + entry["len"]]
        tensors[entry["name"]] = _dequantize(blob, entry) if entry["dtype"] == "i8" else _floats(blob, entry)
        start += entry["len"]
    assert start == len(data), f"{len(data) - start} bytes are left after the last tensor"
    return header, tokenizer, tensors


def _floats(blob: bytes, entry: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(blob, dtype="<f4").reshape(entry["shape"])


def _dequantize(blob: bytes, entry: dict[str, Any]) -> np.ndarray:
    """Decodes (out, in) int8 followed by (out, in / group) float32 scales: each group of a row has one of its own."""
    rows, columns = entry["shape"]
    groups, split = columns // entry["group"], rows * columns
    quantized = np.frombuffer(blob[:split], dtype=np.int8).reshape(rows, groups, entry["group"])
    scales = np.frombuffer(blob[split:], dtype="<f4").reshape(rows, groups, 1)
    return (quantized * scales).astype(np.float32).reshape(rows, columns)


def rename(tensors: Tensors) -> Tensors:
    """Renames the pack's tensors to RobertaModel's; the joint query-key-value matrix is taken apart."""
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        if name in EMBEDDINGS:
            renamed[EMBEDDINGS[name]] = tensor
            continue
        layer, part, parameter = name.split(".")
        prefix, suffix = f"encoder.layer.{layer.removeprefix('l')}", PARAMETERS[parameter]
        if part == "qkv":
            for role, third in zip(("query", "key", "value"), np.split(tensor, 3), strict=True):
                renamed[f"{prefix}.attention.self.{role}.{suffix}"] = third
        else:
            renamed[f"{prefix}.{LAYER[part]}.{suffix}"] = tensor
    return renamed


def _write_config(target: Path, arch: dict[str, Any]) -> None:
    from transformers import RobertaConfig

    config = RobertaConfig(
        vocab_size=arch["vocab"],
        hidden_size=arch["hidden"],
        num_hidden_layers=arch["layers"],
        num_attention_heads=arch["heads"],
        intermediate_size=arch["intermediate"],
        max_position_embeddings=arch["max_positions"],
        type_vocab_size=arch["type_vocab"],
        layer_norm_eps=arch["layer_norm_eps"],
        pad_token_id=arch["position_offset"] - 1,  # RoBERTa's positions start behind the padding's own
        bos_token_id=0,
        eos_token_id=2,
    )
    write_config(target, config, "RobertaModel")
