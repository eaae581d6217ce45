"""Decoding with transformers models by continuous batching: when a text ends, the next prompt takes its row.

Beams are searched by transformers' `generate`. The texts do not depend on the batch: greedy decoding depends on its row
only, and every sample has a separate random stream. (Sums in another order may differ in the last bit; in fp32 this
almost never changes a token.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, pad
from transformers import GenerationConfig

from faithkit.fast import pad_rows
from faithkit.inference.prefill import PromptReader
from faithkit.inference.text import BEAM, NUCLEUS, Completion, Decoding, Prompt, check_prompts, seed_of

CPU_BATCH_SIZE, GPU_BATCH_SIZE = 64, 256
REFILL = 8  # new prompts are read once an eighth of a batch has ended, because reading interrupts the other rows
LIKELIEST = 256  # tokens searched for a nucleus first: sorting a whole vocabulary takes longer than the model


class TransformersEngine:
    """Runs a transformers model, causal or encoder-decoder.

    Args:
        model: Is put into evaluation mode.
        decoder_prefix: Tokens that every text of an encoder-decoder begins with.
        batch_size: Texts at a time: changes the speed, not the texts. None chooses by the model's device.
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
        self.model = model
        self.reader = PromptReader(model, eos_id=eos_id, pad_id=pad_id, decoder_prefix=decoder_prefix)
        self.batch_size = batch_size or (CPU_BATCH_SIZE if model.device.type == "cpu" else GPU_BATCH_SIZE)

    @property
    def device(self) -> str:
        """The type of the model's device."""
        return self.model.device.type

    @torch.no_grad()  # sharded weights need version counters, which inference mode leaves out
    def generate(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        """Yields the completions as they end; long prompts are begun first."""
        check_prompts(prompts)
        longest_first = sorted(prompts, key=lambda prompt: -len(prompt.ids))
        if decoding.strategy == BEAM and decoding.num_beams > 1:  # a single beam is greedy decoding
            size = max(1, self.batch_size // decoding.num_beams)
            for begin in range(0, len(prompts), size):
                yield from self._search_beams(longest_first[begin : begin + size], decoding)
            return
        waiting = [_Text(prompt, n, decoding) for prompt in longest_first for n in range(decoding.num_samples)]
        batch: _TextBatch | None = None
        while waiting or batch:
            num_free = self.batch_size - (batch.num_running if batch else 0)
            can_refill = self.reader.can_refill and num_free * REFILL >= self.batch_size
            if waiting and (batch is None or can_refill):
                texts, waiting = waiting[:num_free], waiting[num_free:]
                new = _TextBatch(texts, *self.reader.begin([text.prompt for text in texts], decoding))
                batch = batch.joined(new) if batch else new
            assert batch is not None
            yield from batch.advance(self.reader, decoding)
            batch = batch.compacted(keep_ended=bool(waiting) and self.reader.can_refill)

    def _search_beams(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        """Yields the best beams of prompts, which transformers' `generate` searches together."""
        model, num_samples, prefix = self.model, decoding.num_samples, list(self.reader.decoder_prefix)
        pad_id, eos_id = self.reader.pad_id, self.reader.eos_id
        settings = GenerationConfig(
            num_beams=decoding.num_beams,
            num_return_sequences=num_samples,
            max_new_tokens=decoding.max_new_tokens,
            min_new_tokens=decoding.min_new_tokens,
            repetition_penalty=decoding.repetition_penalty,
            eos_token_id=eos_id,
            pad_token_id=pad_id,
            decoder_start_token_id=prefix[0] if prefix else None,
        )
        ids, mask = pad_rows([prompt.ids for prompt in prompts], model.device, pad_id if prefix else None)
        inputs = {"input_ids": ids, "attention_mask": mask.long()}
        if prefix:
            inputs["decoder_input_ids"] = torch.tensor([prefix] * len(prompts), device=model.device)
        of_model, model.generation_config = model.generation_config, GenerationConfig()  # which fills what is not set
        try:
            written = model.generate(**inputs, generation_config=settings)
        finally:
            model.generation_config = of_model
        texts = written[:, len(prefix) or ids.shape[1] :]

        # Another pass scores the texts: `generate` would keep the scores of all tokens, beams and steps for that.
        inputs = {name: column.repeat_interleave(num_samples, 0) for name, column in inputs.items()}
        if prefix:
            inputs["decoder_input_ids"] = written[:, :-1]
        else:
            mask = pad(inputs["attention_mask"], (0, texts.shape[1] - 1), value=1)
            places = (mask.cumsum(1) - 1).clamp_min(0)
            inputs = {"input_ids": written[:, :-1], "attention_mask": mask, "position_ids": places}
            inputs["logits_to_keep"] = texts.shape[1]
        logits = model(**inputs, use_cache=False).logits[:, -texts.shape[1] :]
        for place, text in enumerate(texts.tolist()):
            finished = eos_id in text
            length = text.index(eos_id) if finished else len(text)
            scored = slice(length + finished)
            logprob = -float(cross_entropy(logits[place, scored].float(), texts[place, scored], reduction="sum"))
            prompt = prompts[place // num_samples]
            yield Completion(prompt.id, place % num_samples, tuple(text[:length]), logprob, finished)

    @torch.no_grad()  # sharded weights need version counters, which inference mode leaves out
    def next_probabilities(
        self, prompts: Sequence[Prompt], tokens: Sequence[int]
    ) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """Yields for each prompt the probabilities of these tokens as the next one, relative to each other."""
        check_prompts(prompts)
        for part, logits in self.reader.next_logits(prompts):
            shares = torch.softmax(logits[:, list(tokens)].double(), dim=-1).cpu().numpy()
            yield from zip((prompt.id for prompt in part), shares, strict=True)


@dataclass(slots=True)
class _Text:
    """A text that is being written.

    Args:
        draws: The uniform random numbers of its tokens; None without sampling.
        ids: Tokens so far.
    """

    prompt: Prompt
    sample: int
    decoding: Decoding
    draws: NDArray[np.float64] | None = None
    ids: list[int] = field(default_factory=list)
    logprob: float = 0.0
    has_ended: bool = False

    def __post_init__(self) -> None:
        if self.decoding.strategy == NUCLEUS:
            self.draws = uniforms(self.decoding, self.prompt.id, self.sample)


class _TextBatch:
    """Texts that are written together, each with a row of the model's state.

    Args:
        logits: The logits of each text's next token [B, V].
        seen: The tokens that occur before it [B, V]; None without a repetition penalty.
    """

    def __init__(self, texts: list[_Text], state: Any, logits: Tensor, seen: Tensor | None):
        self.texts, self.state, self.logits, self.seen = texts, state, logits, seen

    @property
    def num_running(self) -> int:
        return sum(not text.has_ended for text in self.texts)

    def joined(self, other: "_TextBatch") -> "_TextBatch":
        """Gives the rows of ended texts to those of another batch."""
        places = [place for place, text in enumerate(self.texts) if text.has_ended][: len(other.texts)]
        for place, text in zip(places, other.texts, strict=True):
            self.texts[place] = text
        rows = torch.tensor(places, device=self.logits.device)
        self.state.put(rows, other.state)
        self.logits[rows] = other.logits
        if self.seen is not None and other.seen is not None:
            self.seen[rows] = other.seen
        return self

    def advance(self, reader: PromptReader, decoding: Decoding) -> Iterator[Completion]:
        """Adds a token to every text; yields the texts that end with it."""
        device = self.logits.device
        counts = torch.tensor([len(text.ids) for text in self.texts], device=device)
        draws = None
        if decoding.strategy == NUCLEUS:
            # The result of an ended row is ignored: any number will do.
            drawn = [0.5 if text.has_ended else text.draws[len(text.ids)] for text in self.texts]  # type: ignore[index]
            draws = torch.tensor(drawn, dtype=torch.float64, device=device)
        tokens, logprobs = choose_tokens(
            self.logits, decoding, eos_id=reader.eos_id, counts=counts, seen=self.seen, draws=draws
        )
        if self.seen is not None:
            self.seen.scatter_(1, tokens[:, None], True)
        ended = []
        for place, (token, logprob) in enumerate(zip(tokens.tolist(), logprobs.tolist(), strict=True)):
            text = self.texts[place]
            if text.has_ended:
                continue
            text.ids.append(token)
            text.logprob += logprob
            if token == reader.eos_id or len(text.ids) == decoding.max_new_tokens:
                text.has_ended = True
                ended.append(place)
        for text in (self.texts[place] for place in ended):
            finished = text.ids[-1] == reader.eos_id
            ids = tuple(text.ids[:-1] if finished else text.ids)
            yield Completion(text.prompt.id, text.sample, ids, text.logprob, finished)
        if ended:
            self.state.forget(torch.tensor(ended, device=device))
        if self.num_running:
            self.logits = self.state.step(reader.model, tokens)

    def compacted(self, *, keep_ended: bool) -> "_TextBatch | None":
        """Removes ended rows once a quarter of the batch has ended; returns None if no text is left.

        Args:
            keep_ended: Keeps them, because new texts will take their rows.
        """
        running = [place for place, text in enumerate(self.texts) if not text.has_ended]
        if keep_ended or len(running) * 4 > len(self.texts) * 3:
            return self
        if not running:
            return None
        rows = torch.tensor(running, device=self.logits.device)
        self.texts, self.logits = [self.texts[place] for place in running], self.logits[rows]
        self.seen = None if self.seen is None else self.seen[rows]
        self.state.select(rows)
        return self


def uniforms(decoding: Decoding, prompt_id: str, sample: int) -> NDArray[np.float64]:
    """Draws the random numbers of one completion, one for each token, from a stream keyed by seed, sample and id."""
    key = seed_of(decoding.seed, sample, prompt_id, size=16)
    return np.random.Generator(np.random.Philox(key=key)).random(decoding.max_new_tokens)


def choose_tokens(
    logits: Tensor, decoding: Decoding, *, eos_id: int, counts: Tensor, seen: Tensor | None, draws: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Chooses the next token of each row [B]; also returns its log-probability under the unmodified distribution [B].

    Args:
        logits: Of the next token [B, V].
        counts: Tokens written so far [B].
        seen: The tokens that occur before it [B, V]; for the repetition penalty.
        draws: A uniform random number for each row [B]; for nucleus sampling.
    """
    logits = unmodified = logits.float()
    if decoding.repetition_penalty != 1 and seen is not None:
        penalty = decoding.repetition_penalty
        logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
    if decoding.min_new_tokens:
        logits = logits.clone() if logits is unmodified else logits
        logits[counts < decoding.min_new_tokens, eos_id] = -torch.inf
    if decoding.strategy == NUCLEUS:
        assert draws is not None
        tokens = sample_nucleus(logits / decoding.temperature, decoding.top_p, draws)
    else:
        tokens = logits.argmax(-1)
    chosen = unmodified.gather(1, tokens[:, None])[:, 0]
    return tokens, chosen - unmodified.logsumexp(-1)


def sample_nucleus(logits: Tensor, top_p: float, draws: Tensor) -> Tensor:
    """Samples each row of [B, V] from its nucleus: the inverse of the cumulative distribution at `draws` [B].

    The nucleus is the smallest set of likeliest tokens that reaches `top_p` (Holtzman et al. 2020).
    """
    total = logits.logsumexp(-1, keepdim=True)
    values, tokens = logits.topk(min(LIKELIEST, logits.shape[-1]))
    cumulative = (values - total).exp().double().cumsum(-1)
    if bool((cumulative[:, -1] < top_p).any()):  # a distribution is so flat that its nucleus is larger
        values, tokens = logits.sort(descending=True, stable=True)
        cumulative = (values - total).exp().double().cumsum(-1)
    last = (cumulative < top_p).sum(-1, keepdim=True).clamp_max(cumulative.shape[-1] - 1)  # of the nucleus [B, 1]
    target = draws[:, None] * cumulative.gather(1, last)
    place = torch.minimum((cumulative <= target).sum(-1, keepdim=True), last)
    return tokens.gather(1, place)[:, 0]
