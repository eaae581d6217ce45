"""ModernBERT, for the tokens of the answers alone.

A tagger reads nothing but an answer's tokens, and a layer with a window lets a token see its neighbours only. So each
layer needs no more than what the next one looks at: behind the last layer that sees everything that is the answer and
a margin. What is left out would have changed nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from critic.tagger.forward import places_between
from faithkit.packing import Packing, attend, packed_attention


@dataclass(frozen=True)
class Stretch:
    """The places of each packed window that a layer works on, as `begin` and `end` in the row [windows]."""

    begin: Tensor
    end: Tensor

    @property
    def lengths(self) -> list[int]:
        return (self.end - self.begin).tolist()

    def places(self) -> Tensor:
        return places_between(self.begin, self.end)


def reads_answers(model: Any) -> bool:
    """Tells if `answer_logits` can take its place: on a GPU the kernels want whole sequences."""
    return type(model).__name__ == "ModernBertForTokenClassification" and model.device.type == "cpu"


def answer_logits(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Logits of the tokens of all answers, window by window, of a packed batch [tokens, labels]."""
    encoder = model.model
    stretches = needed(encoder.layers, batch)
    places, packing = stretches[0].places(), Packing.of(stretches[0].lengths)
    hidden = encoder.embeddings(input_ids=batch["input_ids"][:, places])
    positions = batch["position_ids"][:, places]
    angles = {kind: _angles(encoder, hidden, positions, kind) for kind in set(model.config.layer_types)}
    for layer, given, asked in zip(encoder.layers, stretches, stretches[1:], strict=False):
        wanted = places if given is asked else asked.places()
        rows = None if given is asked else torch.searchsorted(places, wanted)
        hidden = _layer(layer, hidden, angles[layer.attention_type], packing, rows, asked.lengths)
        if rows is not None:
            places, packing = wanted, Packing.of(asked.lengths)
            angles = {kind: (cosine[rows], sine[rows]) for kind, (cosine, sine) in angles.items()}
    return model.classifier(model.head(encoder.final_norm(hidden)))[0]


def needed(layers: Sequence[Any], batch: Mapping[str, Tensor]) -> list[Stretch]:
    """The places that each layer reads, and at the end those wanted of the last; one object where nothing is cut."""
    stop = batch["window_lengths"].cumsum(0)
    start = stop - batch["window_lengths"]
    whole = Stretch(start, stop)
    stretches = [Stretch(*batch["bounds"].unbind(1)[2:])]
    for layer in reversed(layers):
        reach, after = layer.attn.sliding_window, stretches[-1]
        if reach is None or after is whole:
            stretches.append(whole)
        else:
            begin, end = after.begin - (reach - 1), after.end + (reach - 1)
            stretches.append(Stretch(torch.maximum(begin, start), torch.minimum(end, stop)))
    return stretches[::-1]


def _angles(encoder: Any, hidden: Tensor, places: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary positions [tokens, size / 2]: both halves of a head turn by the same angles."""
    both = encoder.rotary_emb(hidden.float(), places, kind)
    cosine, sine = (side[0, :, : side.shape[-1] // 2].to(hidden.dtype) for side in both)
    return cosine, sine


def _layer(
    layer: Any, hidden: Tensor, angle: tuple[Tensor, ...], packing: Packing, rows: Tensor | None, wanted: list[int]
) -> Tensor:
    """One layer, for the tokens at `rows` alone: all others are only looked at."""
    attention = layer.attn
    joined = attention.Wqkv(layer.attn_norm(hidden)).unflatten(-1, (3, -1, attention.head_dim))[0]
    query, key, value = joined.permute(1, 2, 0, 3)  # [heads, tokens, size] each
    scaling = attention.head_dim**-0.5
    scaled = tuple(side * scaling for side in angle)  # in place of the queries: an angle serves all heads
    query, key = _rotated(query, scaled), _rotated(key, angle)
    if rows is not None and attention.sliding_window is None:
        sides = (query[:, rows].split(wanted, 1), key.split(packing.lengths, 1), value.split(packing.lengths, 1))
        parts = [attend(q, k, v, None, 0.0, 1.0) for q, k, v in zip(*sides, strict=True)]
        seen = torch.cat(parts, dim=1).transpose(0, 1)[None]
    else:
        options = {"packing": packing, "scaling": 1.0, "sliding_window": attention.sliding_window}
        seen, _ = packed_attention(attention, query[None], key[None], value[None], None, **options)
        seen = seen if rows is None else seen[:, rows]
    hidden = hidden if rows is None else hidden[:, rows]
    hidden = hidden + attention.Wo(seen.flatten(2))
    return hidden + layer.mlp(layer.mlp_norm(hidden))


def _rotated(side: Tensor, angle: tuple[Tensor, ...]) -> Tensor:
    """Each head turned by its token's angles, in the model's own precision: [heads, tokens, size] in one piece."""
    cosine, sine = angle
    half = side.shape[-1] // 2
    first, second = side[..., :half], side[..., half:]
    out = torch.empty(side.shape, dtype=side.dtype)
    torch.mul(first, cosine, out=out[..., :half]).addcmul_(second, sine, value=-1)
    torch.mul(second, cosine, out=out[..., half:]).addcmul_(first, sine)
    return out
