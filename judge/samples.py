"""Samples that a response is compared with: drawn from a model for the same prompt, or the other models' responses."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from faithkit.errors import UserError
from faithkit.inference.decoding import NUCLEUS, Decoding
from faithkit.inference.text import TextEngine
from faithkit.records import Example
from judge.prompt import write_history
from judge.questions import TextPrompt, ask

MODEL = "model"  # in an example's `meta`: who wrote its response


class Drawn(Protocol):
    """Finds samples."""

    def draw(self, examples: Sequence[Example]) -> list[list[str]]:
        """The samples of each example; none where there are none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSamples:
    """Draws samples from a language model that is given what the responder had: knowledge and history.

    Args:
        prompt: With the fields `knowledge` and `history`.
    """

    engine: TextEngine
    prompt: TextPrompt
    num_samples: int = 5
    temperature: float = 1.0
    max_new_tokens: int = 96

    def draw(self, examples: Sequence[Example]) -> list[list[str]]:
        """An example with neither knowledge nor history has no prompt, and so no samples; nor has one that fails."""
        decoding = Decoding(
            strategy=NUCLEUS,
            top_p=1.0,
            temperature=self.temperature,
            num_samples=self.num_samples,
            max_new_tokens=self.max_new_tokens,
        )
        given = [example for example in examples if example.knowledge.strip() or example.history]
        # Responses to one prompt have the same samples: it is asked once.
        prompts = {
            example.id: self.prompt.messages(knowledge=example.knowledge, history=write_history(example.history))
            for example in given
        }
        distinct = list(dict.fromkeys(prompts.values()))
        texts = dict(zip(distinct, (reply.texts for reply in ask(self.engine, distinct, decoding)), strict=True))
        return [[text for text in texts[prompts[e.id]] if text.strip()] if e.id in prompts else [] for e in examples]


@dataclass(frozen=True, slots=True)
class OtherResponses:
    """Takes what the other models said to the same source, as RAGTruth's SelfCheckGPT does."""

    by_group: Mapping[tuple[str, str], Sequence[Example]]

    @classmethod
    def of(cls, examples: Iterable[Example]) -> "OtherResponses":
        """Sorts responses by source.

        Raises:
            UserError: They do not say which model wrote them.
        """
        by_group = defaultdict(list)
        for example in examples:
            if example.meta.get(MODEL) is None:
                problem = f"selfcheck.samples=others: rows of {example.source} do not name the models that wrote them"
                raise UserError(problem, hint="selfcheck.samples=engine engine=transformers engine.model=NAME")
            by_group[example.source, example.group].append(example)
        return cls(dict(by_group))

    def draw(self, examples: Sequence[Example]) -> list[list[str]]:
        """The responses of other models, in their order."""
        return [
            [
                one.response
                for one in self.by_group.get((example.source, example.group), ())
                if one.meta[MODEL] != example.meta[MODEL]
            ]
            for example in examples
        ]
