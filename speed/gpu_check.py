"""Runs a few training steps of each paper recipe on one GPU: random weights of the true shapes, throughput and memory.

Batches, lengths and LoRA ranks are those of `scale=paper`; a recipe for several GPUs runs the rows of one of them. A
model that is too large runs with as many of its layers as fit. No network is needed.

python -m speed.gpu_check                        about ten minutes; without a GPU it names what it would run
python -m speed.gpu_check --device cpu --quick   tries the program with small shapes, without figures to keep
"""

import gc
from argparse import Namespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers as t
from hydra import compose, initialize_config_dir

from data_modules.encoding.causal import causal_batch
from data_modules.encoding.ragged import Ragged
from faithkit.packing import use_packed_attention
from faithkit.settings.config_files import CONFIGS
from faithkit.training.language_model import run_model, token_losses
from faithkit.training.module import build_optimizer, parameter_groups
from faithkit.weights.adapters import add_adapters
from faithkit.weights.load import build_empty
from generation.doha import DohaForConditionalGeneration
from speed.measure import BenchmarkParser, clock_of, table, write_results

ENCODER = {"hidden_size": 1024, "num_attention_heads": 16}
ROBERTA = ENCODER | {"num_hidden_layers": 24, "intermediate_size": 4096, "max_position_embeddings": 514}
MODERNBERT = {**ENCODER, "num_hidden_layers": 28, "intermediate_size": 2624}
T5 = {"d_model": 768, "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12, "d_ff": 3072, "d_kv": 64}
GPT2 = {"n_embd": 768, "n_layer": 12, "n_head": 12, "attn_pdrop": 0}
MEDIUM = {**GPT2, "n_embd": 1024, "n_layer": 24, "n_head": 16}
SIDE = {"layers": 6, "ffn_dim": 3072, "attention_heads": 12}
BART = {"d_model": 768} | {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SIDE.items()}
LLAMA = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11_008}
LARGER = {"hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "intermediate_size": 13_824}
QUICK = {"head": 4, "layer": 2, "position": 4096, "pdrop": 0, "d_kv": 16}  # sizes by a part of their name; others: 64
FULL, FROZEN, SHARE = 16, 4, 0.7  # bytes a trained and a frozen parameter takes, and the share of the GPU for these
CAUSAL = (t.GPT2LMHeadModel, t.LlamaForCausalLM)
REPLY, LONG = 64, "model.max_length=4096"  # tokens of a judge's reply; ModernBERT needs no windows
# By title: overrides of configs/, class, sizes, and the GPUs that share a batch.
RECIPES: dict[str, tuple[str, Any, dict[str, Any], int]] = {
    "critic, RoBERTa-large": ("model=critic", t.RobertaForSequenceClassification, ROBERTA, 1),
    "tagger, RoBERTa-large": ("model=tagger", t.RobertaForTokenClassification, ROBERTA, 1),
    "tagger, ModernBERT-large": (f"model=tagger {LONG}", t.ModernBertForTokenClassification, MODERNBERT, 1),
    "T5-base": ("model=t5", t.T5ForConditionalGeneration, T5, 1),
    "GPT-2": ("model=gpt2", t.GPT2LMHeadModel, GPT2, 1),
    "DialoGPT-medium": ("model=dialogpt", t.GPT2LMHeadModel, MEDIUM, 1),
    "DoHA, BART-base": ("model=doha", DohaForConditionalGeneration, BART, 1),
    "judge, Llama-2-7B": ("model=judge", t.LlamaForCausalLM, LLAMA, 8),
    "judge, Llama-2-13B with LoRA": ("model=judge_lora", t.LlamaForCausalLM, LARGER, 8),
}


def main() -> None:
    """Runs the recipes one after the other."""
    parser = BenchmarkParser(__doc__, steps=8)
    parser.add_argument("--device", default="cuda")
    options = parser.parse()
    header = ["recipe", "parameters", "layers", "rows x tokens", "rows/s", "tokens/s", "peak GiB"]
    if options.device == "cuda" and not torch.cuda.is_available():
        planned = table(header[:4], [_plan(title, options)[-1] for title in RECIPES])
        print(f"not run: there is no CUDA device. With one, it runs:\n{planned}")
        return
    rows = [_measure(title, options) for title in RECIPES]
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    about = "BF16 autocast over fp32 weights, AdamW and clipping as in training; rows of full length."
    write_results("Paper recipes on one GPU", about, table(header, rows), quick=options.quick, device=name)


def _plan(title: str, options: Namespace) -> tuple[Any, Any, list[str]]:
    """Returns the block `model` of a recipe, the configuration of what fits, and the first cells of its row."""
    overrides, kind, sizes, num_gpus = RECIPES[title]
    with initialize_config_dir(config_dir=str(CONFIGS), version_base="1.3"):
        block = compose("train", overrides=[*overrides.split(), "scale=paper"]).model
    part = 8 if options.quick else 1
    if options.quick:
        sizes = {name: next((small for part, small in QUICK.items() if part in name), 64) for name in sizes}
    block.max_length = block.max_length // part
    block.batch_size = max(1, block.batch_size // num_gpus // part)
    config = kind.config_class(**sizes, pad_token_id=0)
    config.decoder_start_token_id, config.knowledge_token_id, config.speaker_token_ids = 0, 1, [2, 3]
    layers, count = config.num_hidden_layers, build_empty(kind, config).num_parameters()
    if torch.cuda.is_available() and num_gpus > 1:
        room = SHARE * torch.cuda.get_device_properties(0).total_memory / (FROZEN if block.get("lora_rank") else FULL)
        config.num_hidden_layers = max(1, min(layers, int(layers * room / count)))
        count = build_empty(kind, config).num_parameters()
    shape = f"{config.num_hidden_layers} of {layers}", f"{block.batch_size} x {block.max_length:,}"
    return block, config, [title, f"{count / 1e6:,.1f} M", *shape]


def _measure(title: str, options: Namespace) -> list[str]:
    """Trains a model for a few steps; returns the cells of its row."""
    device, kind, (block, config, cells) = torch.device(options.device), RECIPES[title][1], _plan(title, options)
    gc.collect()  # the model before this one
    with device:
        model = kind(config)
    if kind in CAUSAL:
        use_packed_attention(model)
    if block.get("lora_rank"):
        model = add_adapters(model, rank=block.lora_rank, alpha=block.lora_alpha, target_modules=block.lora_modules)
    if block.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    model.train()
    ids = np.random.default_rng(0).integers(5, config.vocab_size, (block.batch_size, block.max_length))
    reply = min(block.get("max_response_length", REPLY), block.max_length // 4)
    optimizer, read_clock = build_optimizer(parameter_groups(model, 1e-5, 0.1), 1e-5), clock_of(options.device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()

    def run(count: int) -> None:
        for _ in range(count):
            with torch.autocast(device.type, torch.bfloat16):
                value = _loss(model, ids, reply, device)
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        assert value.isfinite()

    try:
        run(2)  # to warm up
        begin = read_clock()
        run(options.steps)
        rows = options.steps * block.batch_size / (read_clock() - begin)
    except torch.OutOfMemoryError:
        return [*cells, "-", "-", "does not fit"]
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    return [*cells, f"{rows:,.1f}", f"{rows * block.max_length:,.0f}", f"{peak:.1f}"]


def _loss(model: Any, ids: Any, reply: int, device: torch.device) -> Any:
    """Computes the loss of a batch of random tokens, of which the last ones are the reply; causal models are packed."""
    tokens = torch.from_numpy(ids).to(device)
    if model.config.is_encoder_decoder:
        return model(input_ids=tokens, labels=tokens[:, :reply].contiguous()).loss
    if hasattr(model, "classifier"):
        logits = model(input_ids=tokens).logits.float()
        return F.cross_entropy(logits.flatten(0, -2), (tokens if logits.ndim == 3 else tokens[:, 0]).flatten() % 2)
    context, response = (Ragged.from_lists(part.tolist()) for part in (ids[:, :-reply], ids[:, -reply:]))
    arrays = causal_batch(context, response, pad_id=0, packed=True)
    batch = {name: torch.as_tensor(values).to(device) for name, values in arrays.items()}
    return token_losses(run_model(model, batch).logits, batch["target"]).mean()


if __name__ == "__main__":
    main()
