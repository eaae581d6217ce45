"""Beam search over batches that stay full: a search that is over makes room for the next prompt.

It finds what transformers' `generate` finds, with a length penalty of 1 and without early stopping: texts that came to
their end are ranked by their log-probability a token, and a search is over when no running beam could still displace
one of the `num_beams` best. There a batch runs as long as its longest search; here a search that is over costs nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from faithkit.inference.decoder_state import Seq2SeqState, State
from faithkit.inference.decoding import Completion, Decoding, Prompt
from faithkit.inference.sampling import likeliest, penalised

if TYPE_CHECKING:
    from faithkit.inference.transformers_engine import TransformersEngine

NEVER = -1e9  # the score of beams that do not exist yet: all of a search begin as the same text


def search_beams(engine: "TransformersEngine", prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
    """The best beams of each prompt, likeliest first, as the searches get ready."""
    size, waiting = max(1, engine.batch_size // decoding.num_beams), list(prompts)
    batch: _Batch | None = None
    while waiting or batch:
        room = size - (len(batch.searches) if batch else 0)
        if waiting and (batch is None or engine.takes_in(room, size)):
            new = _Batch.begin(engine, waiting[:room], decoding)
            batch = new if batch is None else batch.joined(new)
            del waiting[:room]
        assert batch is not None
        yield from batch.advance(engine, decoding)
        batch = batch if batch.searches else None


@dataclass(slots=True)
class _Beam:
    """A text that a search goes on with.

    Args:
        score: Sum of log-probabilities under the penalties of the decoding; what beams are ranked by.
        logprob: The same under the model's own distribution.
    """

    ids: list[int]
    score: float
    logprob: float


@dataclass(slots=True)
class _Search:
    """The beams of one prompt."""

    prompt: Prompt
    running: list[_Beam]
    done: list[tuple[float, _Beam]] = field(default_factory=list)  # with the score a token, the best first

    @classmethod
    def new(cls, prompt: Prompt, num_beams: int) -> "_Search":
        return cls(prompt, [_Beam([], NEVER if number else 0.0, 0.0) for number in range(num_beams)])

    def extend(self, options: Sequence[tuple[_Beam, int]], eos_id: int, decoding: Decoding) -> list[int]:
        """Goes on with the likeliest texts that are not at their end; gives the beam that each of them continues.

        Args:
            options: The likeliest texts of one token more, each with the beam that it continues, the best first.
        """
        length = len(options[0][0].ids)
        ends = [length == decoding.max_new_tokens or beam.ids[-1] == eos_id for beam, _ in options]
        # An end that is not among the best as it stands is not kept: the search may still come to it another way.
        first = list(zip(options, ends, strict=True))[: decoding.num_beams]
        self.done += [(beam.score / length, beam) for (beam, _), end in first if end]
        self.done = sorted(self.done, key=lambda pair: -pair[0])[: decoding.num_beams]
        kept = [option for option, end in zip(options, ends, strict=True) if not end][: decoding.num_beams]
        self.running = [beam for beam, _ in kept]
        return [parent for _, parent in kept]

    def is_over(self, decoding: Decoding) -> bool:
        if not self.running:
            return True
        best = self.running[0]
        return len(self.done) == decoding.num_beams and best.score / len(best.ids) <= self.done[-1][0]

    def completions(self, eos_id: int, decoding: Decoding) -> Iterator[Completion]:
        for number, (_, beam) in enumerate(self.done[: decoding.num_samples]):
            finished = beam.ids[-1] == eos_id
            ids = tuple(beam.ids[:-1] if finished else beam.ids)
            yield Completion(self.prompt.id, number, ids, beam.logprob, finished)


class _Batch:
    """Searches side by side: the rows of the state are the beams of the first, then those of the second, and so on."""

    def __init__(self, searches: list[_Search], state: State, logits: Tensor, seen: Tensor | None):
        self.searches, self.state, self.logits, self.seen = searches, state, logits, seen

    @classmethod
    def begin(cls, engine: "TransformersEngine", prompts: Sequence[Prompt], decoding: Decoding) -> "_Batch":
        """Reads each prompt once."""
        num_beams = decoding.num_beams
        state, logits, seen = engine.begin(prompts, decoding)
        rows = torch.arange(len(prompts), device=logits.device).repeat_interleave(num_beams)
        if engine.shares_keys and isinstance(state, Seq2SeqState):
            state.widen(num_beams)
        else:
            state.select(rows)
        searches = [_Search.new(prompt, num_beams) for prompt in prompts]
        return cls(searches, state, logits[rows], None if seen is None else seen[rows])

    def joined(self, other: "_Batch") -> "_Batch":
        """The searches of both."""
        seen = None if self.seen is None or other.seen is None else torch.cat([self.seen, other.seen])
        state = type(self.state).join([self.state, other.state])  # type: ignore[list-item]
        return _Batch(self.searches + other.searches, state, torch.cat([self.logits, other.logits]), seen)

    def advance(self, engine: "TransformersEngine", decoding: Decoding) -> Iterator[Completion]:
        """Adds a token to every beam; gives the texts of the searches that are over, and does without these."""
        rows: list[int] = []
        alive, num_beams = [], decoding.num_beams
        for number, (search, options) in enumerate(zip(self.searches, self._options(engine, decoding), strict=True)):
            parents = search.extend(options, engine.eos_id, decoding)
            if search.is_over(decoding):
                yield from search.completions(engine.eos_id, decoding)
            else:
                alive.append(search)
                rows += [number * num_beams + parent for parent in parents]
        left, self.searches = len(self.searches) - len(alive), alive
        if not alive:
            return
        device = self.logits.device
        following = torch.tensor(rows, device=device)
        if left:
            self.state.select(following)
        else:
            self.state.reorder(following)
        tokens = torch.tensor([beam.ids[-1] for search in alive for beam in search.running], device=device)
        if self.seen is not None:
            self.seen = self.seen[following].scatter_(1, tokens[:, None], True)
        self.logits = self.state.step(engine.model, tokens)

    def _options(self, engine: "TransformersEngine", decoding: Decoding) -> Iterator[list[tuple[_Beam, int]]]:
        """Of each search the likeliest texts of one token more: twice as many as beams, for each may come to its end
        once, and the others must suffice to go on with.
        """
        own = self.logits.float().log_softmax(-1)
        before = [beam for search in self.searches for beam in search.running]
        counts = torch.tensor([len(beam.ids) for beam in before], device=own.device)
        score = penalised(own, decoding, eos_id=engine.eos_id, counts=counts, seen=self.seen)
        count, num_options = len(self.searches), 2 * decoding.num_beams
        values, tokens = likeliest(score, min(num_options, score.shape[-1]))  # more of one beam cannot be among them
        raw, width = own.gather(1, tokens).view(count, -1), tokens.shape[1]
        values = values + torch.tensor([beam.score for beam in before], device=own.device)[:, None]
        values, places = values.view(count, -1).topk(num_options)
        tokens, raw = tokens.view(count, -1).gather(1, places), raw.gather(1, places)
        parents = places // width
        found = (side.tolist() for side in (values, raw, parents, tokens))
        for search, *own_options in zip(self.searches, *found, strict=True):
            options = []
            for value, logprob, parent, token in zip(*own_options, strict=True):
                beam = search.running[parent]
                options.append((_Beam([*beam.ids, token], value, beam.logprob + logprob), parent))
            yield options
