"""Searches beams with continuous batching: when a search ends, the next prompt takes its rows.

It finds the beams of transformers' `generate` with a length penalty of 1 and without early stopping: finished texts are
ranked by log-probability per token, and a search ends when no running beam can displace one of its `num_beams` best.
`generate` runs a batch as long as its longest search; here a finished search costs nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from faithkit.inference.decoder_state import CausalState, Seq2SeqState
from faithkit.inference.decoding import Completion, Decoding, Prompt
from faithkit.inference.prefill import PromptReader
from faithkit.inference.t5_state import T5State

NEVER = -1e9  # the score of all initial beams but the first, which are the same text


@dataclass(slots=True)
class _Beam:
    """A text that a search may continue.

    Args:
        ids: Its tokens so far.
        score: The sum of log-probabilities with penalties, by which beams are ranked.
        logprob: The sum under the model's unmodified distribution.
        parent: The number of the running beam that it extends.
    """

    ids: list[int]
    score: float
    logprob: float = 0.0
    parent: int = 0


@dataclass(slots=True)
class _Search:
    """The beams of one prompt.

    Args:
        running: The unfinished texts, the best first.
        done: The best finished texts with their scores per token, the best first.
    """

    prompt: Prompt
    running: list[_Beam]
    done: list[tuple[float, _Beam]] = field(default_factory=list)

    def extend(self, candidates: Sequence[_Beam], eos_id: int, decoding: Decoding) -> None:
        """Keeps the finished texts among the candidates and continues with the likeliest others.

        Args:
            candidates: The likeliest texts that are one token longer, the best first.
        """
        length, num_beams = len(candidates[0].ids), decoding.num_beams
        is_end = [length == decoding.max_new_tokens or beam.ids[-1] == eos_id for beam in candidates]
        pairs = list(zip(candidates, is_end, strict=True))
        # An end below the first num_beams candidates is dropped: a better beam may still lead to it.
        self.done += [(beam.score / length, beam) for beam, ends in pairs[:num_beams] if ends]
        self.done = sorted(self.done, key=lambda pair: -pair[0])[:num_beams]
        self.running = [beam for beam, ends in pairs if not ends][:num_beams]

    def is_over(self, decoding: Decoding) -> bool:
        """Whether no running beam can displace one of the `num_beams` best finished texts."""
        if not self.running:
            return True
        best = self.running[0]
        return len(self.done) == decoding.num_beams and best.score / len(best.ids) <= self.done[-1][0]

    def completions(self, eos_id: int, decoding: Decoding) -> Iterator[Completion]:
        """Yields the best finished texts."""
        for number, (_, beam) in enumerate(self.done[: decoding.num_samples]):
            finished = beam.ids[-1] == eos_id
            ids = tuple(beam.ids[:-1] if finished else beam.ids)
            yield Completion(self.prompt.id, number, ids, beam.logprob, finished)


class BeamBatch:
    """Runs searches together; row `search * num_beams + beam` of its tensors belongs to that beam.

    Args:
        logits: The logits of each beam's next token [searches * beams, V].
        seen: The tokens that occur before it [searches * beams, V]; None without a repetition penalty.
    """

    def __init__(self, searches: list[_Search], state: CausalState, logits: Tensor, seen: Tensor | None):
        self.searches, self.state, self.logits, self.seen = searches, state, logits, seen

    @classmethod
    def begin(cls, reader: PromptReader, prompts: Sequence[Prompt], decoding: Decoding) -> "BeamBatch":
        """Reads each prompt once and begins its search."""
        num_beams = decoding.num_beams
        state, logits, seen = reader.begin(prompts, decoding)
        rows = torch.arange(len(prompts), device=logits.device).repeat_interleave(num_beams)
        if reader.shares_keys and isinstance(state, Seq2SeqState | T5State):
            state.widen(num_beams)
        else:
            state.select(rows)
        initial = [_Beam([], NEVER if number else 0.0) for number in range(num_beams)]
        searches = [_Search(prompt, list(initial)) for prompt in prompts]
        return cls(searches, state, logits[rows], None if seen is None else seen[rows])

    @property
    def num_running(self) -> int:
        return len(self.searches)

    def joined(self, other: "BeamBatch") -> "BeamBatch":
        """Appends the searches of another batch."""
        seen = None if self.seen is None or other.seen is None else torch.cat([self.seen, other.seen])
        state = type(self.state).join([self.state, other.state])
        return BeamBatch(self.searches + other.searches, state, torch.cat([self.logits, other.logits]), seen)

    def advance(self, reader: PromptReader, decoding: Decoding) -> Iterator[Completion]:
        """Adds a token to every beam; yields the texts of the searches that end with it, and removes those."""
        rows: list[int] = []
        remaining, num_beams = [], decoding.num_beams
        candidates = self._candidates(reader.eos_id, decoding)
        for number, (search, beams) in enumerate(zip(self.searches, candidates, strict=True)):
            search.extend(beams, reader.eos_id, decoding)
            if search.is_over(decoding):
                yield from search.completions(reader.eos_id, decoding)
            else:
                remaining.append(search)
                rows += [number * num_beams + beam.parent for beam in search.running]
        num_ended, self.searches = len(self.searches) - len(remaining), remaining
        if not remaining:
            return
        device = self.logits.device
        parents = torch.tensor(rows, device=device)
        if num_ended:
            self.state.select(parents)
        else:
            self.state.reorder(parents)
        tokens = torch.tensor([beam.ids[-1] for search in remaining for beam in search.running], device=device)
        if self.seen is not None:
            self.seen = self.seen[parents].scatter_(1, tokens[:, None], True)
        self.logits = self.state.step(reader.model, tokens)

    def compacted(self, *, keep_ended: bool) -> "BeamBatch | None":
        """Returns None if no search is left; `advance` has removed those that ended."""
        return self if self.searches else None

    def _candidates(self, eos_id: int, decoding: Decoding) -> Iterator[list[_Beam]]:
        """Yields for each search the likeliest texts that are one token longer, the best first.

        There are twice as many as beams: each beam may end once, and the same number must be left to continue.
        """
        beams = [beam for search in self.searches for beam in search.running]
        num_searches, num_candidates = len(self.searches), 2 * decoding.num_beams

        # Score every next token of every beam [searches * beams, V].
        logprobs = self.logits.float().log_softmax(-1)
        counts = torch.tensor([len(beam.ids) for beam in beams], device=logprobs.device)
        scores = penalised(logprobs, decoding, eos_id=eos_id, counts=counts, seen=self.seen)

        # The best candidates of a search are among the best of each of its beams [searches * beams, width].
        scores, tokens = scores.topk(min(num_candidates, scores.shape[-1]))
        logprobs, width = logprobs.gather(1, tokens), tokens.shape[1]
        scores = scores + torch.tensor([beam.score for beam in beams], device=scores.device)[:, None]

        # Find the best over all beams of a search [searches, candidates]; place // width is the extended beam.
        scores, places = scores.view(num_searches, -1).topk(num_candidates)
        tokens = tokens.view(num_searches, -1).gather(1, places)
        logprobs = logprobs.view(num_searches, -1).gather(1, places)
        columns = (side.tolist() for side in (tokens, scores, logprobs, places // width))
        for search, *rows in zip(self.searches, *columns, strict=True):
            running = search.running
            yield [
                _Beam([*running[parent].ids, token], score, running[parent].logprob + logprob, parent)
                for token, score, logprob, parent in zip(*rows, strict=True)
            ]


def penalised(scores: Tensor, decoding: Decoding, *, eos_id: int, counts: Tensor, seen: Tensor | None) -> Tensor:
    """Applies the repetition penalty to logits or log-probabilities [B, V] and forbids the end before min_new_tokens.

    The input is not changed.
    """
    given = scores
    if decoding.repetition_penalty != 1 and seen is not None:
        penalty = decoding.repetition_penalty
        scores = torch.where(seen, torch.where(scores > 0, scores / penalty, scores * penalty), scores)
    if decoding.min_new_tokens:
        scores = scores.clone() if scores is given else scores
        scores[counts < decoding.min_new_tokens, eos_id] = -torch.inf
    return scores
