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

from data_modules.encoding.encoder import Ragged, causal_batch
from faithkit.fast import accelerate_training
from faithkit.settings.config_files import CONFIGS
from faithkit.training.language_model import run_model, token_losses
from faithkit.training.module import build_optimizer
from faithkit.weights.adapters import add_adapters
from faithkit.weights.load import build_empty
from speed import gpu_speed as gpu
from speed.measure import clock_of, table

FULL, FROZEN = 16 / 0.7, 4 / 0.7  # bytes of a trained and a frozen weight, which may fill this share of the memory
CAUSAL = (t.GPT2LMHeadModel, t.LlamaForCausalLM)
REPLY = 64  # tokens of a judge's reply


def main() -> None:
    """Runs the recipes one after the other."""
    options = gpu.GpuParser(__doc__, steps=8).parse()
    header = ["recipe", "parameters", "layers", "rows x tokens", "rows/s", "tokens/s", "peak GiB"]
    if options.missing:
        gpu.print_plan(header[:4], [_plan(title, options)[-1] for title in gpu.RECIPES])
        return
    rows = [_measure(title, options) for title in gpu.RECIPES]
    about = "BF16 autocast over fp32 weights, AdamW and clipping as in training; rows of full length."
    gpu.write_gpu_results("Paper recipes on one GPU", options, about, table(header, rows))


def _plan(title: str, options: Namespace) -> tuple[Any, Any, list[str]]:
    """Returns the block `model` of a recipe, the configuration of what fits, and the first cells of its row."""
    overrides, kind, sizes, num_gpus = gpu.RECIPES[title]
    with initialize_config_dir(config_dir=str(CONFIGS), version_base="1.3"):
        block = compose("train", overrides=[*overrides.split(), "scale=paper"]).model
    part = 8 if options.quick else 1
    block.max_length = block.max_length // part
    block.batch_size = max(1, block.batch_size // num_gpus // part)
    tokens = {"pad_token_id": 0, "decoder_start_token_id": 0, "knowledge_token_id": 1, "speaker_token_ids": [2, 3]}
    room = 0 if num_gpus == 1 else FROZEN if block.get("lora_rank") else FULL
    config, layers = gpu.make_config(kind, sizes, quick=options.quick, bytes_per_weight=room, **tokens)
    count = build_empty(kind, config).num_parameters()
    shape = f"{config.num_hidden_layers} of {layers}", f"{block.batch_size} x {block.max_length:,}"
    return block, config, [title, f"{count / 1e6:,.1f} M", *shape]


def _measure(title: str, options: Namespace) -> list[str]:
    """Trains a model for a few steps; returns the cells of its row."""
    device, kind, (block, config, cells) = torch.device(options.device), gpu.RECIPES[title][1], _plan(title, options)
    gc.collect()  # the model before this one
    with device:
        model = kind(config)
    accelerate_training(model, packed=kind in CAUSAL)
    if block.get("lora_rank"):
        model = add_adapters(model, rank=block.lora_rank, alpha=block.lora_alpha, target_modules=block.lora_modules)
    if block.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    model.train()
    ids = np.random.default_rng(0).integers(5, config.vocab_size, (block.batch_size, block.max_length))
    reply = min(block.get("max_response_length", REPLY), block.max_length // 4)
    optimizer, read_clock = build_optimizer(model, 1e-5, 0.1), clock_of(options.device)
    gpu.reset_peak(options.device)

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
    return [*cells, f"{rows:,.1f}", f"{rows * block.max_length:,.0f}", gpu.peak_gib(options.device)]


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
