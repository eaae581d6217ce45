"""Keeps the state of decoding as transformers does: padded prompts, its cache and its attention."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from faithkit.fast.batch_planning import pad_rows


class PlainState:
    """The state of any model, with the interface of `CausalState`; all rows begin together.

    Args:
        model_inputs: What the model reads again at every token: the mask of all columns, or of an encoder-decoder the
            encoder's output and its mask.
    """

    can_refill = can_share = can_join = False

    def __init__(self, model_inputs: dict[str, Any]):
        self.model_inputs, self.cache = model_inputs, None

    @classmethod
    def read(
        cls,
        model: Any,
        ids: Sequence[NDArray[np.int32]],
        pad_id: int,
        decoder_prefix: Sequence[int],
        prefix: None = None,
    ) -> tuple["PlainState", Tensor]:
        """Reads prompts, and decodes the beginning of every text; returns their state and the logits [B, V]."""
        tokens, mask = pad_rows(ids, model.device, pad_id if decoder_prefix else None)
        if not decoder_prefix:
            state = cls({"attention_mask": mask.long()})
            return state, state._run(model, input_ids=tokens)
        hidden = model.get_encoder()(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        state = cls({"encoder_outputs": BaseModelOutput(last_hidden_state=hidden), "attention_mask": mask.long()})
        begin = torch.tensor([list(decoder_prefix)], device=model.device).expand(len(ids), -1)
        return state, state._run(model, decoder_input_ids=begin)

    def _run(self, model: Any, **tokens: Tensor) -> Tensor:
        mask = self.model_inputs["attention_mask"]
        if "input_ids" in tokens:  # rows are padded on the left
            places = (mask.cumsum(1) - 1).clamp_min(0)
            tokens["position_ids"] = places[:, -tokens["input_ids"].shape[1] :]
        output = model(**self.model_inputs, **tokens, past_key_values=self.cache, use_cache=True)
        self.cache = output.past_key_values
        return output.logits[:, -1]

    def step(self, model: Any, tokens: Tensor) -> Tensor:
        """Adds a token to each row [B]; returns the next tokens' logits [B, V]."""
        if model.config.is_encoder_decoder:
            return self._run(model, decoder_input_ids=tokens[:, None])
        mask = self.model_inputs["attention_mask"]
        self.model_inputs["attention_mask"] = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        return self._run(model, input_ids=tokens[:, None])

    def forget(self, rows: Tensor) -> None:
        """Finished rows stay in the batch until `select` drops them."""

    def select(self, rows: Tensor) -> None:
        """Keeps these rows in this order; a row may occur several times."""
        inputs = self.model_inputs
        inputs["attention_mask"] = inputs["attention_mask"][rows]
        if "encoder_outputs" in inputs:
            inputs["encoder_outputs"] = BaseModelOutput(last_hidden_state=inputs["encoder_outputs"][0][rows])
        assert self.cache is not None
        self.cache.batch_select_indices(rows)
