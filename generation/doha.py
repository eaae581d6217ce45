"""DoHA's two cross-attentions in BART ("Focused Attention Improves Document-Grounded Generation").

Each decoder layer has self-attention, a cross-attention to the history, and a second one to knowledge and history, with
a separate layer norm; both start as copies of BART's. One encoder encodes both inputs (views).
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, BartConfig, BartForConditionalGeneration
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.bart.modeling_bart import (
    BartAttention,
    BartDecoder,
    BartDecoderLayer,
    BartEncoder,
    BartModel,
)


def without_knowledge(
    ids: Tensor, mask: Tensor | None, *, knowledge_id: int, speaker_ids: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Removes the knowledge from each row; gives the tokens left and a mask of those that are no padding [rows, width].

    Args:
        ids: Padded at the right [rows, longer width].
        mask: 0 where a row is padded; None if none is.
    """
    place = torch.arange(ids.shape[1], device=ids.device)
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    marker = ids == knowledge_id
    begin = torch.where(marker.any(1), marker.int().argmax(1), ids.shape[1])[:, None]
    speaks = torch.isin(ids, torch.tensor(list(speaker_ids), device=ids.device)) & (place > begin)
    end = torch.where(speaks.any(1), speaks.int().argmax(1), real.sum(1) - 1)[:, None]
    kept = real & ((place < begin) | (place >= end))
    # A stable sort moves the kept tokens to the front of each row, in their order.
    order = kept.int().argsort(dim=1, descending=True, stable=True)[:, : int(kept.sum(1).max())]
    return ids.gather(1, order), kept.gather(1, order)


def join_views(whole: Tensor, history: Tensor, there: Tensor) -> Tensor:
    """Joins both encodings into one tensor, which caches and beam search handle like any encoder's output.

    Args:
        whole: States of all tokens [rows, width, size].
        history: States of those that are not knowledge [rows, narrower width, size].
        there: Which of these are no padding [rows, narrower width].

    Returns:
        [rows, width, 2 * size + 1]; the last number is 1 for a state of the history and 0 for padding.
    """
    history_and_mask = torch.cat([history, there[..., None].to(history.dtype)], dim=2)
    return torch.cat([whole, F.pad(history_and_mask, (0, 0, 0, whole.shape[1] - history.shape[1]))], dim=2)


def split_views(joined: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Splits what `join_views` joined: states of all tokens, of the history, and the history's mask, equally wide."""
    size = joined.shape[2] // 2
    return joined[..., :size], joined[..., size : 2 * size], joined[..., -1] > 0


SECOND = "knowledge_attn"  # prefix of the parameters that BART lacks


class DohaConfig(BartConfig):
    """BART's configuration with the ids of the markers around the knowledge."""

    model_type = "doha"

    knowledge_token_id: int | None = None
    speaker_token_ids: list[int] | None = None


class DohaEncoder(BartEncoder):
    """Encodes each row twice: as it is, and without its knowledge."""

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutput:
        """Gives the states of both views, joined by `join_views`."""
        assert input_ids is not None, "the knowledge is found by its marker tokens"
        ids, there = without_knowledge(
            input_ids,
            attention_mask,
            knowledge_id=self.config.knowledge_token_id,
            speaker_ids=self.config.speaker_token_ids,
        )
        whole = super().forward(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        history = super().forward(input_ids=ids, attention_mask=there.long()).last_hidden_state
        return BaseModelOutput(last_hidden_state=join_views(whole, history, there))  # type: ignore[arg-type]


class DohaDecoderLayer(BartDecoderLayer):
    """BART's layer with a second cross-attention behind the first."""

    dropout: float
    activation_dropout: float

    def __init__(self, config: Any, layer_idx: int):
        super().__init__(config, layer_idx)
        self.knowledge_attn = BartAttention(
            config.d_model,
            config.decoder_attention_heads,
            dropout=config.attention_dropout,
            is_decoder=True,
            config=config,
            layer_idx=layer_idx + config.decoder_layers,  # where its keys and values are cached
        )
        self.knowledge_attn_layer_norm = nn.LayerNorm(config.d_model)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = True,
        *,
        history_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        assert encoder_hidden_states is not None
        whole, history, _ = split_views(encoder_hidden_states)
        cached = {"past_key_values": past_key_values, **kwargs}
        attended, _ = self.self_attn(hidden_states, attention_mask=attention_mask, **cached)
        hidden_states = self.self_attn_layer_norm(hidden_states + self._dropped(attended))
        attended, _ = self.encoder_attn(hidden_states, history, attention_mask=history_mask, **cached)
        hidden_states = self.encoder_attn_layer_norm(hidden_states + self._dropped(attended))
        attended, _ = self.knowledge_attn(hidden_states, whole, attention_mask=encoder_attention_mask, **cached)
        hidden_states = self.knowledge_attn_layer_norm(hidden_states + self._dropped(attended))
        inner = self.activation_fn(self.fc1(hidden_states))
        inner = self.fc2(nn.functional.dropout(inner, p=self.activation_dropout, training=self.training))
        return self.final_layer_norm(hidden_states + self._dropped(inner))

    def _dropped(self, states: Tensor) -> Tensor:
        return nn.functional.dropout(states, p=self.dropout, training=self.training)


class DohaDecoder(BartDecoder):
    """BART's decoder over the joined states of two views."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.layers = nn.ModuleList([DohaDecoderLayer(config, number) for number in range(config.decoder_layers)])
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        assert encoder_hidden_states is not None
        if past_key_values is None and use_cache is not False:
            past_key_values = growing_cache()
        states = self.embed_tokens(input_ids)
        history_mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=states,
            attention_mask=split_views(encoder_hidden_states)[2],
            encoder_hidden_states=encoder_hidden_states,
        )
        return super().forward(
            inputs_embeds=states,
            attention_mask=attention_mask,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            past_key_values=past_key_values,
            use_cache=use_cache,
            history_mask=history_mask,
        )


class DohaModel(BartModel):
    """BART's encoder and decoder with two views."""

    def __init__(self, config: DohaConfig):
        super().__init__(config)
        self.encoder, self.decoder = DohaEncoder(config), DohaDecoder(config)
        self.post_init()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs BART; `encoder_last_hidden_state` is that of knowledge and history together."""
        output = super().forward(*args, **kwargs)
        output.encoder_last_hidden_state = split_views(output.encoder_last_hidden_state)[0]
        return output


class DohaForConditionalGeneration(BartForConditionalGeneration):
    """DoHA as a transformers model: loads BART's or DoHA's weights, and generates."""

    config_class = DohaConfig

    def __init__(self, config: DohaConfig):
        super().__init__(config)
        self.model = DohaModel(config)
        self.post_init()

    @classmethod
    def from_pretrained(cls, source: Any, *, output_loading_info: bool = False, **options: Any) -> Any:  # type: ignore[override]
        """Loads weights; from plain BART's the second cross-attention and its norm start as the first.

        Args:
            output_loading_info: Gives also what transformers reports of the tensors; those copied do not count as
                missing.
        """
        loaded: Any = super().from_pretrained(source, output_loading_info=True, **options)
        model, report = loaded
        if cls.__name__ not in (model.config.architectures or []):
            with torch.no_grad():
                for layer in model.model.decoder.layers:
                    layer.knowledge_attn.load_state_dict(layer.encoder_attn.state_dict())
                    layer.knowledge_attn_layer_norm.load_state_dict(layer.encoder_attn_layer_norm.state_dict())
            report["missing_keys"] = {name for name in report["missing_keys"] if SECOND not in name}
        return (model, report) if output_loading_info else model

    @classmethod
    def from_config(cls, config: DohaConfig) -> "DohaForConditionalGeneration":
        return cls._from_config(config)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generates as transformers does, with a cache that has room for both cross-attentions."""
        options = {"past_key_values": growing_cache(), **kwargs}
        return super().generate(*args, **options)  # type: ignore[misc]


def growing_cache() -> EncoderDecoderCache:
    """Makes a cache that adds layers as they are asked for: one made by the configuration has only BART's layers."""
    return EncoderDecoderCache(DynamicCache(), DynamicCache())


AutoConfig.register(DohaConfig.model_type, DohaConfig)
