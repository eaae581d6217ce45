"""An engine whose replies a test sets, to see what a judge makes of them; models have engines of their own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from faithkit.inference.text import Decoding, Form, Reply, Request


@dataclass
class SetEngine:
    """Replies by functions of the prompt; the last request comes first, as engines may do it."""

    says: Callable[[str], Sequence[str]] = lambda prompt: ["Yes."]
    weighs: Callable[[str], Mapping[str, float]] = lambda prompt: {}
    problem: Callable[[str], str] = lambda prompt: ""
    identity: str = "set"
    asked: list[str] = field(default_factory=list)

    def generate(self, requests: Sequence[Request], decoding: Decoding, form: Form | None = None) -> Iterator[Reply]:
        for request in reversed(requests):
            prompt = request.messages[-1].content
            self.asked.append(prompt)
            if problem := self.problem(prompt):
                yield Reply(id=request.id, problem=problem)
                continue
            texts = tuple(self.says(prompt))[: decoding.num_samples]
            yield Reply(id=request.id, texts=texts, finished=(True,) * len(texts))

    def weigh(self, requests: Sequence[Request], choices: Sequence[str]) -> Iterator[Reply]:
        for request in reversed(requests):
            prompt = request.messages[-1].content
            if problem := self.problem(prompt):
                yield Reply(id=request.id, problem=problem)
            else:
                yield Reply(id=request.id, probabilities=self.weighs(prompt))
