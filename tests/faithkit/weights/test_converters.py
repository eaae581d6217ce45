"""The readers of quantized files, on bytes worked out by hand."""

import json
import struct

import numpy as np

from faithkit.weights.converters import flan_t5_small, granite_bart, granite_roberta, smollm2
from faithkit.weights.converters.gguf_reader import read_gguf
from faithkit.weights.converters.onnx_reader import Node, dequantized, read_onnx


def half(*values: float) -> bytes:
    return np.array(values, dtype="<f2").tobytes()


def gguf_string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def test_gguf_metadata_and_each_kind_of_block(tmp_path):
    four_bit = half(0.5, -1.0) + bytes(low | (15 - low) << 4 for low in range(16))
    eight_bit = half(2.0) + np.arange(-16, 16, dtype=np.int8).tobytes()
    plain = np.arange(32, dtype="<f4").tobytes()
    header = b"GGUF" + struct.pack("<IQQ", 3, 3, 3)
    header += gguf_string("name") + struct.pack("<I", 8) + gguf_string("tiny")
    header += gguf_string("heads") + struct.pack("<II", 4, 9)
    header += gguf_string("list") + struct.pack("<IIQ", 9, 5, 2) + struct.pack("<ii", 7, -7)
    for name, dims, kind, offset in (("q4", (32,), 3, 0), ("q8", (32,), 8, 32), ("f", (16, 2), 0, 96)):
        header += gguf_string(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        header += struct.pack("<IQ", kind, offset)
    header += b"\0" * (-len(header) % 32)
    path = tmp_path / "tiny.gguf"
    path.write_bytes(header + four_bit.ljust(32, b"\0") + eight_bit.ljust(64, b"\0") + plain)

    metadata, tensors = read_gguf(path)

    assert metadata == {"name": "tiny", "heads": 9, "list": [7, -7]}
    nibbles = [*range(16), *range(15, -1, -1)]  # the low halves of all bytes, then the high ones
    np.testing.assert_array_equal(tensors["q4"], [value * 0.5 - 1.0 for value in nibbles])
    np.testing.assert_array_equal(tensors["q8"], np.arange(-16, 16) * 2.0)
    np.testing.assert_array_equal(tensors["f"], np.arange(32.0).reshape(2, 16))  # (out, in)


def test_llamas_rows_are_put_back_in_order():
    rows = np.arange(8.0)[:, None]  # two heads of four rows: 0 1 2 3 was stored as 0 2 1 3
    stored = rows[[0, 2, 1, 3, 4, 6, 5, 7]]
    tensors = {"blk.0.attn_q.weight": stored, "blk.0.attn_v.weight": stored, "output_norm.weight": rows}
    metadata = {"llama.attention.head_count": 2, "llama.attention.head_count_kv": 2}
    renamed = smollm2.rename(tensors, metadata)
    np.testing.assert_array_equal(renamed["model.layers.0.self_attn.q_proj.weight"], rows)
    np.testing.assert_array_equal(renamed["model.layers.0.self_attn.v_proj.weight"], stored)
    assert "model.norm.weight" in renamed


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def onnx_tensor(name: str, kind: int, dims: tuple[int, ...], number: int, content: bytes) -> bytes:
    message = b"".join(field(1, dim) for dim in dims) + field(2, kind) + field(8, name.encode())
    return field(5, message + field(number, content))


def test_onnx_weights_are_named_by_the_node_that_reads_them(tmp_path):
    graph = onnx_tensor("onnx::MatMul_1_quantized", 3, (2, 3), 9, bytes([0, 1, 2, 3, 4, 0xFF]))
    graph += onnx_tensor("onnx::MatMul_1_scale", 1, (), 4, struct.pack("<f", 0.5))
    graph += onnx_tensor("onnx::MatMul_1_zero_point", 3, (), 5, varint(-2))
    graph += onnx_tensor("m.norm.weight", 1, (2,), 9, struct.pack("<ff", 1.0, 2.0))
    inputs = [b"x_quantized", b"onnx::MatMul_1_quantized", b"x_zero_point", b"onnx::MatMul_1_zero_point"]
    node = b"".join(field(1, name) for name in inputs) + field(3, b"/m/block.0/q/MatMul_quant")
    graph += field(1, node + field(4, b"MatMulInteger"))
    path = tmp_path / "tiny.onnx"
    path.write_bytes(field(1, 8) + field(2, b"onnx.quantize") + field(7, graph))

    tensors, nodes = read_onnx(path)

    assert nodes == [Node("/m/block.0/q/MatMul_quant", tuple(name.decode() for name in inputs))]
    expected = (np.array([[0, 1, 2], [3, 4, -1]]) + 2) * 0.5  # (q - zero point) * scale
    np.testing.assert_array_equal(dequantized(tensors)["onnx::MatMul_1"], expected)
    named = flan_t5_small.weights(tensors, nodes)
    assert set(named) == {"m.norm.weight", "m.block.0.q.weight"}
    np.testing.assert_array_equal(named["m.block.0.q.weight"], expected.T)  # PyTorch's (out, in)


def test_the_pack_has_a_scale_for_each_group_and_one_matrix_for_three():
    values = np.arange(24, dtype=np.int8).reshape(6, 4)
    scales = np.arange(1, 13, dtype="<f4").reshape(6, 2)  # groups of two
    entries = [
        {"name": "l0.qkv.w", "dtype": "i8", "shape": [6, 4], "len": 24 + 48, "group": 2},
        {"name": "emb_ln.b", "dtype": "f32", "shape": [2], "len": 8, "group": 0},
    ]
    header = json.dumps({"tokenizer_len": 2, "tensors": entries}).encode()
    data = granite_roberta.MAGIC + struct.pack("<Q", len(header)) + header + b"{}"
    data += values.tobytes() + scales.tobytes() + struct.pack("<ff", 1.0, 2.0)

    _, tokenizer, tensors = granite_roberta.read_pack(data)

    assert tokenizer == "{}"
    expected = values * np.repeat(scales, 2, axis=1)
    np.testing.assert_array_equal(tensors["l0.qkv.w"], expected)
    renamed = granite_roberta.rename(tensors)
    np.testing.assert_array_equal(renamed["encoder.layer.0.attention.self.key.weight"], expected[2:4])
    np.testing.assert_array_equal(renamed["embeddings.LayerNorm.bias"], [1.0, 2.0])


def test_bart_is_made_of_robertas_layers():
    sizes = {"query": (2, 2), "key": (2, 2), "value": (2, 2)}
    tensors = {
        "embeddings.word_embeddings.weight": np.ones((5, 2)),
        "embeddings.position_embeddings.weight": np.arange(6.0).reshape(3, 2),
        "embeddings.token_type_embeddings.weight": np.array([[10.0, 20.0]]),
        **{f"embeddings.LayerNorm.{parameter}": np.ones(2) for parameter in ("weight", "bias")},
    }
    for layer in range(4):
        for place, name in enumerate(granite_bart.LAYER):
            shape = sizes.get(name.rpartition(".")[2], (2,))
            for parameter in ("weight", "bias"):
                tensors[f"encoder.layer.{layer}.{name}.{parameter}"] = np.full(shape, 10.0 * layer + place)
    made = granite_bart.rename(tensors, 4, [1, 3])
    np.testing.assert_array_equal(made["model.decoder.embed_positions.weight"], [[10, 21], [12, 23], [14, 25]])
    assert made["model.encoder.layers.2.self_attn.k_proj.weight"][0, 0] == 21
    second = {name: value for name, value in made.items() if name.startswith("model.decoder.layers.1.")}
    assert {name: value.flat[0] for name, value in second.items() if name.endswith("v_proj.bias")} == {
        "model.decoder.layers.1.self_attn.v_proj.bias": 32,
        "model.decoder.layers.1.encoder_attn.v_proj.bias": 32,
    }
    assert second["model.decoder.layers.1.encoder_attn_layer_norm.weight"][0] == 34
    assert second["model.decoder.layers.1.fc2.weight"][0] == 36
    words = 2**0.5  # their length
    np.testing.assert_allclose(second["model.decoder.layers.1.final_layer_norm.weight"], 1 / words)
    assert not any("decoder.layers.2" in name for name in made)
