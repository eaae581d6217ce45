"""SmolLM2-135M-Instruct: a quantized GGUF file, to a LlamaForCausalLM with tokenizer and chat template."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.weights.converters.gguf_reader import read_gguf
from faithkit.weights.converters.hf_folder import Tensors, write_config, write_tensors, write_tokenizer

VERSION = 1

CONTROL = 3  # the kind of token that is never part of a text
TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
LAYER = {
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


def convert(source: Path, target: Path) -> None:
    """Write a LlamaForCausalLM's folder."""
    (file,) = source.glob("*.gguf")
    metadata, tensors = read_gguf(file)
    write_tensors(target, rename(tensors, metadata))
    _write_configs(target, metadata)
    _write_tokenizer(target, metadata)


def rename(tensors: Tensors, metadata: dict[str, Any]) -> Tensors:
    """Renames GGUF's tensors to LlamaForCausalLM's. The output matrix is the embedding: the file has no other."""
    count = "llama.attention.head_count"
    heads = {"attn_q": metadata[count], "attn_k": metadata[f"{count}_kv"]}
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        if name in TOP:
            renamed[TOP[name]] = tensor
            continue
        _, layer, part, _ = name.split(".")  # blk.0.attn_q.weight
        if part in heads:
            tensor = _unpermute(tensor, heads[part])
        renamed[f"model.layers.{layer}.{LAYER[part]}.weight"] = tensor
    return renamed


def _unpermute(tensor: np.ndarray, num_heads: int) -> np.ndarray:
    """Undo llama.cpp's order of rows, which interleaves the two halves that rotary embeddings pair."""
    rows, columns = tensor.shape
    pairs = tensor.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _write_configs(target: Path, metadata: dict[str, Any]) -> None:
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
        rms_norm_eps=round(epsilon, 8),  # 1e-5, which went through float32
        rope_parameters={"rope_type": "default", "rope_theta": metadata["llama.rope.freq_base"]},
        tie_word_embeddings=True,
        **special,
    )
    write_config(target, config, "LlamaForCausalLM")
    GenerationConfig(**special).save_pretrained(target)


def _write_tokenizer(target: Path, metadata: dict[str, Any]) -> None:
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    merges = [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]]
    assert metadata["tokenizer.ggml.pre"] == "smollm"  # which says: digits one by one, then GPT-2's rule
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    control = [i for i, kind in enumerate(kinds) if kind == CONTROL]
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
