"""Decoding with transformers models by continuous batching: when a text ends, the next prompt takes its row.

What is written does not depend on the batch: greedy decoding looks at its own row alone, and every sample draws from a
random stream of its own. (Sums in another order may differ in the last bit; in fp32 this hardly ever decides a token.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faithkit.inference.beams import search_beams
from faithkit.inference.cache import shares_keys, use_grouped_attention
from faithkit.inference.decoder_state import CausalState, Seq2SeqState, State
from faithkit.inference.decoding import BEAM, NUCLEUS, Completion, Decoding, Prompt, check_prompts
from faithkit.inference.sampling import choose_tokens, uniforms
from faithkit.inference.shared_beginnings import Shared, find_shared

CPU_BATCH_SIZE, GPU_BATCH_SIZE = 64, 256
# Prompt tokens of one prefill, padding counted. A CPU is fastest while a layer's activations stay in its cache.
CPU_READ_TOKENS, GPU_READ_TOKENS = 1024, 16_384
# Tokens, of prompts and of beginnings that they share, whose keys and values are kept at a time.
CPU_KEPT_TOKENS, GPU_KEPT_TOKENS = 16_384, 65_536
# Tokens that a shared beginning must save: on a GPU a pass for itself costs as much as thousands of tokens.
CPU_WORTH, GPU_WORTH = 64, 8192
REFILL = 8  # new prompts are read once an eighth of the batch has ended: each read interrupts the rows that go on


class TransformersEngine:
    """Runs a transformers model, causal or encoder-decoder.

    Args:
        model: Is put into evaluation mode.
        decoder_prefix: Tokens that every text of an encoder-decoder begins with.
        batch_size: Texts at a time: changes the speed, not the texts. None takes what suits the model's device.
    """

    name = "transformers"

    def __init__(
        self,
        model: Any,
        *,
        eos_id: int,
        pad_id: int,
        decoder_prefix: Sequence[int] = (),
        batch_size: int | None = None,
    ):
        self.model, self.eos_id, self.pad_id = model.eval(), eos_id, pad_id
        self.is_seq2seq = bool(model.config.is_encoder_decoder)
        assert bool(decoder_prefix) == self.is_seq2seq, "an encoder-decoder, and no other model, has a decoder_prefix"
        self.decoder_prefix = tuple(decoder_prefix)
        on_cpu = model.device.type == "cpu"
        self.batch_size = batch_size or (CPU_BATCH_SIZE if on_cpu else GPU_BATCH_SIZE)
        self.read_tokens = CPU_READ_TOKENS if on_cpu else GPU_READ_TOKENS
        self.kept_tokens = CPU_KEPT_TOKENS if on_cpu else GPU_KEPT_TOKENS
        # A window counts columns, and behind a shared beginning a row may have columns that are none of its own.
        slides = getattr(model.config, "sliding_window", None) is not None
        self.worth = None if self.is_seq2seq or slides else CPU_WORTH if on_cpu else GPU_WORTH
        # A decoder that counts its positions by the columns of the cache cannot begin rows one by one.
        self.refills = not self.is_seq2seq or hasattr(model.config, "relative_attention_num_buckets")
        use_grouped_attention(model)
        self.shares_keys = self.is_seq2seq and shares_keys(model)

    @property
    def device(self) -> str:
        """The kind of device that the model is on."""
        return self.model.device.type

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        """Yields the completions as they end; long prompts are begun first."""
        check_prompts(prompts)
        waiting = sorted(prompts, key=lambda prompt: -len(prompt.ids))
        if decoding.strategy == BEAM and decoding.num_beams > 1:  # a single beam is the greedy way
            yield from search_beams(self, waiting, decoding)
            return
        texts = [_Text.new(prompt, sample, decoding) for prompt in waiting for sample in range(decoding.num_samples)]
        batch: _Batch | None = None
        while texts or batch:
            room = self.batch_size - (batch.num_alive if batch else 0)
            if texts and (batch is None or self.takes_in(room, self.batch_size)):
                batch = self._fill(batch, texts[:room], decoding)
                del texts[:room]
            assert batch is not None
            yield from batch.advance(self, decoding)
            batch = batch.compacted(keep_ended=bool(texts) and self.refills)

    @torch.inference_mode()
    def next_probabilities(
        self, prompts: Sequence[Prompt], tokens: Sequence[int]
    ) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """Yields for each prompt how probable each of some tokens is as the next one, relative to the others.

        What prompts begin with alike is read once.
        """
        check_prompts(prompts)
        for part, _, logits in self._read_shared(self._share(prompts), None):
            shares = torch.softmax(logits[:, list(tokens)].double(), dim=-1).cpu().numpy()
            yield from zip((prompt.id for prompt in part), shares, strict=True)

    def _share(self, prompts: Sequence[Prompt]) -> Shared:
        return Shared(alone=list(prompts)) if self.worth is None else find_shared(prompts, self.worth)

    def _read_shared(
        self, shared: Shared, begun: CausalState | None
    ) -> Iterator[tuple[Sequence[Prompt], State, Tensor]]:
        """Yields prompts of similar lengths with their state and the logits of their next tokens.

        Args:
            begun: The state of what all of them begin with; None for nothing.
        """
        done = shared.length
        waiting = sorted(shared.alone, key=lambda prompt: -len(prompt.ids))
        for part in _by_tokens(waiting, self.read_tokens, done, self.kept_tokens):
            ids = [prompt.ids[done:] for prompt in part]
            yield part, *(self._read_part(ids) if begun is None else begun.read_behind(self.model, ids, self.pad_id))
        for group in shared.groups:
            ids = [group.prompts()[0].ids[done : group.length]]
            state, _ = self._read_part(ids) if begun is None else begun.read_behind(self.model, ids, self.pad_id)
            assert isinstance(state, CausalState)
            yield from self._read_shared(group, state)

    def _fill(self, batch: "_Batch | None", texts: list["_Text"], decoding: Decoding) -> "_Batch":
        """Reads the prompts of new texts and gives them the rows of ended ones, or begins a batch."""
        state, logits, seen = self.begin([text.prompt for text in texts], decoding)
        if batch is None:
            return _Batch(list(texts), state, logits, seen)
        batch.put(texts, state, logits, seen)
        return batch

    def takes_in(self, room: int, size: int) -> bool:
        """Tells whether a batch of `size` rows, of which `room` are free, should read new prompts now."""
        return self.refills and room * REFILL >= size

    def begin(self, prompts: Sequence[Prompt], decoding: Decoding) -> tuple[State, Tensor, Tensor | None]:
        """Reads prompts: gives their state, a row each, the logits of the next token [B, V], and for the repetition
        penalty which tokens stand before it [B, V].

        A prompt that comes several times is read once and its row copied; so is what prompts begin with alike.
        """
        state, logits = self._read(prompts)
        return state, logits, self._seen(prompts, logits.shape[-1]) if decoding.repetition_penalty != 1 else None

    def _read(self, prompts: Sequence[Prompt]) -> tuple[State, Tensor]:
        unique = {prompt.id: prompt for prompt in prompts}
        states: list[State] = []
        logits: list[Tensor] = []
        place: dict[str, int] = {}
        for part, state, following in self._read_shared(self._share(list(unique.values())), None):
            states.append(state)
            logits.append(following)
            place |= {prompt.id: len(place) + number for number, prompt in enumerate(part)}
        state = states[0] if len(states) == 1 else type(states[0]).join(states)  # type: ignore[arg-type]
        following = torch.cat(logits)
        rows = [place[prompt.id] for prompt in prompts]
        if rows != list(range(len(unique))):
            order = torch.tensor(rows, device=self.model.device)
            state.select(order)
            following = following[order]
        return state, following

    def _read_part(self, ids: Sequence[NDArray[np.int32]]) -> tuple[State, Tensor]:
        if self.is_seq2seq:
            return Seq2SeqState.read(self.model, ids, self.pad_id, self.decoder_prefix)
        return CausalState.read(self.model, ids, self.pad_id)

    def _seen(self, prompts: Sequence[Prompt], size: int) -> Tensor:
        seen = torch.zeros(len(prompts), size, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            seen[row, list(self.decoder_prefix) if self.is_seq2seq else prompt.ids.astype(np.int64)] = True
        return seen.to(self.model.device)


def _by_tokens(
    prompts: Sequence[Prompt], most: int, done: int = 0, kept: int | None = None
) -> Iterator[Sequence[Prompt]]:
    """Cuts prompts, longest first, into parts of at most `most` tokens, padding counted.

    Args:
        done: Tokens at the beginning of each that are read already.
        kept: Tokens of a part, with those that are read already; None sets no bound.
    """
    begin = 0
    while begin < len(prompts):
        length = len(prompts[begin].ids)
        count = most // (length - done) if kept is None else min(most // (length - done), kept // length)
        count = max(1, count)
        yield prompts[begin : begin + count]
        begin += count


@dataclass(slots=True)
class _Text:
    """A text that is being written.

    Args:
        draws: Its uniform random numbers, one a token; None without sampling.
        ids: Tokens so far.
    """

    prompt: Prompt
    sample: int
    draws: NDArray[np.float64] | None
    ids: list[int]
    logprob: float = 0.0
    ended: bool = False

    @classmethod
    def new(cls, prompt: Prompt, sample: int, decoding: Decoding) -> "_Text":
        draws = uniforms(decoding, prompt.id, sample) if decoding.strategy == NUCLEUS else None
        return cls(prompt, sample, draws, [])

    def completion(self, finished: bool) -> Completion:
        ids = self.ids[:-1] if finished else self.ids
        return Completion(self.prompt.id, self.sample, tuple(ids), self.logprob, finished)


class _Batch:
    """Texts that are written side by side, with the model's state of each.

    Args:
        logits: Of each text's next token [B, V].
        seen: Which tokens stand before it [B, V]; None without a repetition penalty.
    """

    def __init__(self, texts: list[_Text], state: State, logits: Tensor, seen: Tensor | None):
        self.texts, self.state, self.logits, self.seen = texts, state, logits, seen

    @property
    def num_alive(self) -> int:
        return sum(not text.ended for text in self.texts)

    def put(self, texts: list[_Text], state: State, logits: Tensor, seen: Tensor | None) -> None:
        """Gives new texts the rows of ended ones."""
        places = [place for place, text in enumerate(self.texts) if text.ended][: len(texts)]
        for place, text in zip(places, texts, strict=True):
            self.texts[place] = text
        rows = torch.tensor(places, device=logits.device)
        self.state.put(rows, state)  # type: ignore[arg-type]
        self.logits[rows] = logits
        if self.seen is not None and seen is not None:
            self.seen[rows] = seen

    def advance(self, engine: TransformersEngine, decoding: Decoding) -> Iterator[Completion]:
        """Adds a token to every text; yields the texts that end with it."""
        device = self.logits.device
        counts = torch.tensor([len(text.ids) for text in self.texts], device=device)
        draws = None
        if decoding.strategy == NUCLEUS:
            # An ended row is computed along; any number will do for it.
            drawn = [0.5 if text.ended else text.draws[len(text.ids)] for text in self.texts]  # type: ignore[index]
            draws = torch.tensor(drawn, dtype=torch.float64, device=device)
        tokens, logprobs = choose_tokens(
            self.logits, decoding, eos_id=engine.eos_id, counts=counts, seen=self.seen, draws=draws
        )
        if self.seen is not None:
            self.seen.scatter_(1, tokens[:, None], True)
        ended = []
        for place, (text, token, logprob) in enumerate(
            zip(self.texts, tokens.tolist(), logprobs.tolist(), strict=True)
        ):
            if text.ended:
                continue
            text.ids.append(token)
            text.logprob += logprob
            if token == engine.eos_id or len(text.ids) == decoding.max_new_tokens:
                text.ended = True
                ended.append(place)
        yield from (self.texts[place].completion(self.texts[place].ids[-1] == engine.eos_id) for place in ended)
        if ended:
            self.state.forget(torch.tensor(ended, device=device))
        if self.num_alive:
            self.logits = self.state.step(engine.model, tokens)

    def compacted(self, *, keep_ended: bool) -> "_Batch | None":
        """Drops ended rows once a quarter of the batch has ended; gives None when no text is left.

        Args:
            keep_ended: Keep them: new texts will take their rows.
        """
        alive = [place for place, text in enumerate(self.texts) if not text.ended]
        if keep_ended or len(alive) * 4 > len(self.texts) * 3:
            return self
        if not alive:
            return None
        rows = torch.tensor(alive, device=self.logits.device)
        self.texts, self.logits = [self.texts[place] for place in alive], self.logits[rows]
        self.seen = None if self.seen is None else self.seen[rows]
        self.state.select(rows)
        return self
