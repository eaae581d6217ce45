"""The door to the optimised paths of models; other packages import from here alone. README.md lists what each gains.

    accelerate(model, FIRST_TOKEN)             inference: the model gives the same outputs in less time
    accelerate_training(model, packed=True)    training: call it before the model is sharded or moved

Both change a model of transformers in place; its weights and their names stay. With `fast=false` or FAITHKIT_FAST=0,
and where torch lacks the private operators that a path needs (`hardware.py`), models run as in transformers.
"""

# ruff: noqa: F401 (a door gives names that it does not use)
from typing import Any

from faithkit.errors import UserError
from faithkit.fast.batch_planning import Batch, pad_rows, plan_batches, run_batches
from faithkit.fast.hardware import (
    SWITCH,
    best_precision,
    computes_in_bf16,
    describe,
    describe_runner,
    is_enabled,
    keep_freed_memory,
    place_model,
    resolve_precision,
    return_freed_memory,
    to_bf16,
    wants_bf16,
)
from faithkit.fast.layers import can_quantise, missing_rows, quantise, replace_dropout, speed_up_linear_layers
from faithkit.fast.model_layers import (
    MODELS,
    first_token_only,
    keep_answers,
    plan_answers,
    reads_first_token,
    replace_layers,
    use_half_norms,
    without_last_layer,
)
from faithkit.fast.packing import (
    Packing,
    allow_packed_attention,
    first_position,
    is_packed,
    pack_inputs,
    places_between,
    use_packed_attention,
)

# What is read of a model's last layer.
EVERY_TOKEN, FIRST_TOKEN, ANSWERS = "every token", "first token", "answers"


def accelerate(model: Any, reads: str = EVERY_TOKEN) -> Any:
    """Makes a model faster and returns it; its outputs are the same up to float rounding.

    Args:
        model: Of transformers, on its device. In its final precision its linear layers and, in training, its norms
            become faster, so call it without `reads` once it has that.
        reads: FIRST_TOKEN for a classifier of sequences: takes inputs of `pack_inputs`. ANSWERS for a classifier of
            tokens: takes packed rows alone if `is_packed`, and inputs of `plan_answers`.
    """
    if not is_enabled():
        return model
    if reads == FIRST_TOKEN:
        if model.device.type == "cuda" and reads_first_token(model):
            allow_packed_attention(model)
        first_token_only(model)
    elif reads == ANSWERS:
        if use_packed_attention(model):
            keep_answers(model)
    else:
        speed_up_linear_layers(model)
        if model.training and next(model.parameters()).is_cuda:
            use_half_norms(model)
    return model


def accelerate_training(model: Any, reads: str = EVERY_TOKEN, *, packed: bool = False) -> None:
    """Prepares a new model for fast training; on its device `accelerate` makes its layers faster.

    Args:
        reads: FIRST_TOKEN for a classifier of sequences: takes inputs of `pack_inputs`.
        packed: Takes packed rows alone.

    Raises:
        UserError: It cannot take packed rows.
    """
    if packed and not use_packed_attention(model):
        problem = f"{type(model).__name__} has a custom attention and cannot be packed"
        raise UserError(problem, hint="set model.packed=false")
    if is_enabled():
        if reads == FIRST_TOKEN and reads_first_token(model) and allow_packed_attention(model):
            first_token_only(model)
        replace_layers(model)
        replace_dropout(model)


def accelerate_decoding(model: Any) -> tuple[Any, bool]:
    """Makes a model that writes faster.

    Returns:
        The class of its state, `CausalState` or one with its interface, and whether the model takes the argument
        `packed_pass`, which then computes its attention.
    """
    from transformers import PreTrainedModel

    from faithkit.fast.decoder_state import GROUPED, CausalState, PlainState, Seq2SeqState
    from faithkit.fast.t5_state import T5State

    if not is_enabled():
        return PlainState, False
    for part in model.modules():  # T5's decoder has a separate configuration
        if isinstance(part, PreTrainedModel) and part.config._attn_implementation == "sdpa":
            part.set_attn_implementation(GROUPED)
    accelerate(model)
    if model.config.is_encoder_decoder:
        return T5State if type(model).__name__ in MODELS else Seq2SeqState, False
    has_interface = getattr(model, "_supports_attention_backend", False)
    return CausalState, has_interface and model.config._attn_implementation == GROUPED
