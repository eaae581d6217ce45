"""The readers of quantized files, on bytes whose decoded values are known."""

import struct

import numpy as np

from faithkit.weights.converters import named_onnx_weights, read_gguf, read_onnx, rename_llama


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
    renamed = rename_llama(tensors, metadata)
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

    assert nodes == [("/m/block.0/q/MatMul_quant", [name.decode() for name in inputs])]
    expected = (np.array([[0, 1, 2], [3, 4, -1]]) + 2) * 0.5  # (q - zero point) * scale
    named = named_onnx_weights(tensors, nodes)
    assert set(named) == {"m.norm.weight", "m.block.0.q.weight"}
    np.testing.assert_array_equal(named["m.block.0.q.weight"], expected.T)  # PyTorch's (out, in)
