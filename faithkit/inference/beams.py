"""Beam search by continuous batching: when a search ends, the next prompt takes its rows.

It finds what transformers' `generate` finds with a length penalty of 1 and without early stopping: ended texts are
ranked by their log-probability a token, and a search ends when no running beam could still displace one of its
`num_beams` best. `generate` runs a batch as long as its longest search; here a search that has ended costs nothing.
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

NEVER = -1e9  # all beams of a search begin as the same text: with this score all but the first never win a place


def search_beams(engine: "TransformersEngine", prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
    """Yields the best beams of each prompt, likeliest first, as the searches end."""
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
    """A text that a search may continue.

    Args:
        ids: Its tokens so far.
        score: Sum of log-probabilities under the penalties of the decoding; beams are ranked by it.
        logprob: The same under the model's own distribution.
    """

    ids: list[int]
    score: float
    logprob: float


@dataclass(slots=True)
class _Option:
    """A beam with one token more.

    Args:
        beam: The longer text.
        parent: Number of the running beam that it continues.
    """

    beam: _Beam
    parent: int


@dataclass(slots=True)
class _Search:
    """The beams of one prompt.

    Args:
        running: The texts that go on, the best first.
        done: The best ended texts, each with its score a token, the best first.
    """

    prompt: Prompt
    running: list[_Beam]
    done: list[tuple[float, _Beam]] = field(default_factory=list)

    @classmethod
    def new(cls, prompt: Prompt, num_beams: int) -> "_Search":
        return cls(prompt, [_Beam([], NEVER if number else 0.0, 0.0) for number in range(num_beams)])

    def extend(self, options: Sequence[_Option], eos_id: int, decoding: Decoding) -> list[int]:
        """Keeps the ended texts among the options, and goes on with the likeliest of the others.

        Args:
            options: The likeliest texts of one token more, the best first.

        Returns:
            For each beam that now runs the number of the beam that it continues.
        """
        length, num_beams = len(options[0].beam.ids), decoding.num_beams
        ends = [length == decoding.max_new_tokens or option.beam.ids[-1] == eos_id for option in options]
        # An end below the first num_beams options is not kept: the search may still reach it by a better way.
        first = list(zip(options, ends, strict=True))[:num_beams]
        self.done += [(option.beam.score / length, option.beam) for option, end in first if end]
        self.done = sorted(self.done, key=lambda pair: -pair[0])[:num_beams]
        kept = [option for option, end in zip(options, ends, strict=True) if not end][:num_beams]
        self.running = [option.beam for option in kept]
        return [option.parent for option in kept]

    def is_over(self, decoding: Decoding) -> bool:
        """Tells whether no running beam could still displace one of the `num_beams` best ended texts."""
        if not self.running:
            return True
        best = self.running[0]
        return len(self.done) == decoding.num_beams and best.score / len(best.ids) <= self.done[-1][0]

    def completions(self, eos_id: int, decoding: Decoding) -> Iterator[Completion]:
        """Yields the best ended texts."""
        for number, (_, beam) in enumerate(self.done[: decoding.num_samples]):
            finished = beam.ids[-1] == eos_id
            ids = tuple(beam.ids[:-1] if finished else beam.ids)
            yield Completion(self.prompt.id, number, ids, beam.logprob, finished)


class _Batch:
    """Searches side by side.

    Row `search * num_beams + beam` of the state, of `logits` and of `seen` belongs to that beam of that search.

    Args:
        logits: Of each beam's next token [searches * beams, V].
        seen: Which tokens stand before it [searches * beams, V]; None without a repetition penalty.
    """

    def __init__(self, searches: list[_Search], state: State, logits: Tensor, seen: Tensor | None):
        self.searches, self.state, self.logits, self.seen = searches, state, logits, seen

    @classmethod
    def begin(cls, engine: "TransformersEngine", prompts: Sequence[Prompt], decoding: Decoding) -> "_Batch":
        """Reads each prompt once and begins a search of it."""
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
        """Puts the searches of another batch behind these."""
        seen = None if self.seen is None or other.seen is None else torch.cat([self.seen, other.seen])
        state = type(self.state).join([self.state, other.state])  # type: ignore[list-item]
        return _Batch(self.searches + other.searches, state, torch.cat([self.logits, other.logits]), seen)

    def advance(self, engine: "TransformersEngine", decoding: Decoding) -> Iterator[Completion]:
        """Adds a token to every beam; yields the texts of the searches that end with it, and drops those."""
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

    def _options(self, engine: "TransformersEngine", decoding: Decoding) -> Iterator[list[_Option]]:
        """Yields for each search the likeliest texts of one token more, the best first.

        They are twice as many as beams: each beam may come to its end once, and as many must be left to go on with.
        """
        beams = [beam for search in self.searches for beam in search.running]
        num_searches, num_options = len(self.searches), 2 * decoding.num_beams

        # Score every next token of every beam [searches * beams, V].
        logprobs = self.logits.float().log_softmax(-1)
        counts = torch.tensor([len(beam.ids) for beam in beams], device=logprobs.device)
        scores = penalised(logprobs, decoding, eos_id=engine.eos_id, counts=counts, seen=self.seen)

        # The best options of a search are among the best of each of its beams [searches * beams, width].
        scores, tokens = likeliest(scores, min(num_options, scores.shape[-1]))
        logprobs, width = logprobs.gather(1, tokens), tokens.shape[1]
        scores = scores + torch.tensor([beam.score for beam in beams], device=scores.device)[:, None]

        # Of all beams of a search together the best [searches, options]; place // width is the beam continued.
        scores, places = scores.view(num_searches, -1).topk(num_options)
        tokens = tokens.view(num_searches, -1).gather(1, places)
        logprobs = logprobs.view(num_searches, -1).gather(1, places)
        columns = (side.tolist() for side in (scores, logprobs, places // width, tokens))
        for search, *rows in zip(self.searches, *columns, strict=True):
            yield [_option(search, *row) for row in zip(*rows, strict=True)]


def _option(search: _Search, score: float, logprob: float, parent: int, token: int) -> _Option:
    """Makes the option that continues a running beam with a token.

    Args:
        score: Of the whole longer text.
        logprob: Of the token alone.
    """
    beam = search.running[parent]
    return _Option(_Beam([*beam.ids, token], score, beam.logprob + logprob), parent)
