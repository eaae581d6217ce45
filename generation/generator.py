"""Answering with a trained generator: one turn or many, the same whatever is answered beside it.

from generation import Generator
Generator.load("runs/...").reply(knowledge="...", history=["Have you heard of ...?"])
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tqdm.auto import tqdm

from data_modules.encoding.turns import TurnEncoder
from data_modules.reading.fields import alternate
from faithkit.errors import UserError, shorten
from faithkit.inference.decoding import Decoding, Engine, Prompt
from faithkit.records import Example, Prediction, Turn
from generation.load_checkpoint import load_checkpoint, load_model, resolve_precision
from generation.settings import Settings
from generation.steering import control_tokens

ENGINES = ("transformers", "vllm")
Advance = Callable[[int], object]  # told how many examples more are answered


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of several answers.

    Args:
        logprob: Of all its tokens together, under the model's own distribution.
        finished: It came to its end; otherwise it was cut at max_new_tokens.
    """

    text: str
    logprob: float
    finished: bool


class Generator:
    """A trained generator, ready to answer.

    Args:
        settings: How the model was trained.
        longest: Tokens of prompt and answer together that the model has places for; None for any number.
    """

    def __init__(self, engine: Engine, encoder: TurnEncoder, settings: Settings, *, longest: int | None = None):
        self.engine, self.encoder, self.settings, self.longest = engine, encoder, settings, longest

    @classmethod
    def load(
        cls,
        path: str,
        *,
        engine: str = "transformers",
        precision: str = "32-true",
        batch_size: int | None = None,
        device: str | None = None,
        max_length: int | None = None,
    ) -> "Generator":
        """A generator from a run, an hf/ folder or a hub name.

        Args:
            engine: transformers, or vllm for causal models where it is installed.
            precision: 32-true, bf16, or auto: bf16 where the hardware computes in it.
            batch_size: Texts at a time; changes the speed, not the answers. None takes what suits the device.
            device: `cuda`, `cpu`, ...; None takes the GPU where there is one.
            max_length: Tokens of knowledge and history that are read, in place of those that it was trained with.
        """
        if engine not in ENGINES:
            raise UserError(f"engine is {engine!r}", hint=f"use one of {', '.join(ENGINES)}")
        loaded = load_checkpoint(path, max_length)
        encoder = loaded.encoder
        if engine == "vllm":
            if loaded.new_tokens:
                problem = "vLLM runs a folder as it is, and this one lacks the markers of a dialogue"
                raise UserError(problem, place=path, hint="give a run of a generator, or use engine=transformers")
            from faithkit.inference.vllm_engine import VllmEngine

            longest = encoder.layout.max_length + encoder.layout.max_response_length
            return cls(
                VllmEngine(
                    loaded.source,
                    eos_id=encoder.tokenizer.eos_token_id,
                    max_length=longest,
                    precision=resolve_precision(precision, "cuda"),
                    batch_size=batch_size,
                ),
                encoder,
                loaded.settings,
                longest=longest,
            )
        from faithkit.inference.transformers_engine import TransformersEngine

        model = load_model(loaded, device=device, precision=precision)
        made = TransformersEngine(
            model,
            eos_id=encoder.tokenizer.eos_token_id,
            pad_id=encoder.tokenizer.pad_token_id,
            decoder_prefix=encoder.decoder_prefix,
            batch_size=batch_size,
        )
        places = getattr(model.config, "max_position_embeddings", None)
        if places is not None and encoder.layout.max_length > places:
            problem = f"max_length is {encoder.layout.max_length}, but this model has {places} places"
            raise UserError(problem, place=path, hint=f"set max_length={places} or less")
        return cls(made, encoder, loaded.settings, longest=places)

    def reply(
        self,
        knowledge: str,
        history: Sequence[str | Turn],
        *,
        decoding: Decoding | None = None,
        control: Sequence[str] | None = None,
    ) -> str:
        """Answers the last turn of a dialogue.

        Args:
            history: What was said, oldest first. Plain texts are read as two people's turns, the asker's last.
            control: Names of control tokens, for a model that was trained with them.

        Raises:
            UserError: Nothing was said, or something is no text.
        """
        turns = _as_turns(history)
        if not isinstance(knowledge, str) or not knowledge.strip():
            raise UserError(f"knowledge must be text that is not empty, got {shorten(knowledge)}")
        example = Example(
            id="reply", source="reply", split="reply", group="reply", knowledge=knowledge, history=turns, response=""
        )
        (prediction,) = self.predict_examples([example], decoding=decoding, control=control)
        return prediction.text

    def predict_examples(
        self,
        examples: Sequence[Example],
        *,
        decoding: Decoding | None = None,
        control: Sequence[str] | None = None,
        progress: bool = False,
    ) -> Iterator[Prediction]:
        """An answer to each example, in their order: `text` is the response, which nobody has judged.

        Their own responses are not looked at. An example without a history is answered from its knowledge alone.
        """
        with tqdm(total=len(examples), desc="answering", disable=not progress, unit="turn") as bar:
            answered = self.candidates(examples, decoding=decoding, control=control, advance=bar.update)
        for example, (first, *_) in zip(examples, answered, strict=True):
            yield Prediction(id=example.id, text=first.text)

    def candidates(
        self,
        examples: Sequence[Example],
        *,
        decoding: Decoding | None = None,
        control: Sequence[str] | None = None,
        advance: Advance | None = None,
    ) -> list[list[Candidate]]:
        """All samples that `decoding` asks for of each example, in the examples' order."""
        decoding = decoding or Decoding(max_new_tokens=self.encoder.layout.max_response_length)
        tokens = control_tokens(self.encoder.layout.control, control)
        contexts = self.encoder.contexts(examples, Counter(), [tokens] * len(examples) if tokens else ())
        self._check_length(int(contexts.lengths.max(initial=0)), decoding)
        prompts = [Prompt(example.id, contexts.row(place)) for place, example in enumerate(examples)]
        place = {example.id: number for number, example in enumerate(examples)}
        found: list[dict[int, Candidate]] = [{} for _ in examples]
        for done in self.engine.generate(prompts, decoding):
            samples = found[place[done.id]]
            text = self.encoder.tokenizer.decode(list(done.ids), skip_special_tokens=True).strip()
            samples[done.sample] = Candidate(text, done.logprob, done.finished)
            if advance and len(samples) == decoding.num_samples:
                advance(1)
        return [[samples[number] for number in range(decoding.num_samples)] for samples in found]

    def _check_length(self, longest_context: int, decoding: Decoding) -> None:
        needed = (
            longest_context + decoding.max_new_tokens
            if not self.encoder.decoder_prefix
            else decoding.max_new_tokens + 1
        )
        if self.longest is not None and needed > self.longest:
            problem = (
                f"an answer of {decoding.max_new_tokens} tokens may need {needed} places; the model has {self.longest}"
            )
            hint = f"set decoding.max_new_tokens={max(1, decoding.max_new_tokens - needed + self.longest)} or less"
            raise UserError(problem, hint=hint)


def _as_turns(history: Sequence[str | Turn]) -> tuple[Turn, ...]:
    texts = [turn.text if isinstance(turn, Turn) else turn for turn in history]
    if isinstance(history, str) or not texts:
        raise UserError(f"history must be a list of turns, got {shorten(history)}", hint="give at least the last turn")
    for place, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            problem = f"a turn must be text that is not empty, got {shorten(text)}"
            raise UserError(problem, place=f"turn {place} of the history")
    speakers = alternate(texts)
    return tuple(turn if isinstance(turn, Turn) else other for turn, other in zip(history, speakers, strict=True))
