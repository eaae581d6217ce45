"""Answers dialogue turns with a trained generator; an answer does not depend on its batch.

from faithkit import Generator
Generator.load("runs/...").reply(knowledge="...", history=["Have you heard of ...?"])
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from tqdm.auto import tqdm

from data_modules.encoding.turn_encoder import TurnEncoder
from data_modules.reading.fields import read_history
from faithkit import arguments
from faithkit.arguments import (
    TURNS_HINT,
    check_lengths,
    is_list,
    read_examples,
    read_iterable,
    read_names,
    read_passages,
    wrong,
)
from faithkit.errors import UserError
from faithkit.inference.text import Decoding, Engine, LocalOptions, Prompt, read_decoding
from faithkit.records import Example, Prediction, Turn
from generation.control import control_tokens
from generation.weights import AUTO, ENGINES, TRANSFORMERS, Settings, check_engine, choose_engine, load_checkpoint

Knowledge = str | list[str] | tuple[str, ...]
History = list[str] | list[Turn] | list[str | Turn] | list[dict[str, str]] | tuple[str | Turn, ...]
ROW_HINT = 'give {"knowledge": "...", "history": ["..."]}, or Example records'


def as_example(knowledge: Any, history: Any, place: str | None = None) -> Example:
    """Makes the example of one turn, with an id that depends on its texts alone.

    Sampling uses a random stream that is seeded by the id, so the same turn gets the same answer in any batch.

    Args:
        knowledge: A text, or passages, which are joined by spaces as in the datasets.
        history: Turns or plain texts, oldest first.
        place: Position in a list, for error messages.

    Raises:
        UserError: A text is empty or no text, or the history is empty.
    """
    text, turns = " ".join(read_passages("knowledge", knowledge, place)), read_history(history, place)
    digest = hashlib.blake2b(digest_size=16)
    for part in (text, *(word for turn in turns for word in (turn.speaker, turn.text))):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    id_ = f"reply:{digest.hexdigest()}"
    return Example(id=id_, source="reply", split="reply", group=id_, knowledge=text, history=turns, response="")


CHUNK_SIZE = 1024  # turns that a stream reads together
Advance = Callable[[int], object]  # called with the number of examples that were just answered


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of several answers to a turn.

    Args:
        logprob: Sum of its tokens' log-probabilities under the model's distribution.
        finished: The model generated the end token; otherwise it was cut at max_new_tokens.
    """

    text: str
    logprob: float
    finished: bool


class ReplyOptions(TypedDict, total=False):
    """How answers are decoded; see `Generator.reply`."""

    decoding: Decoding | None
    control: Sequence[str] | None


class Generator:
    """A trained generator that answers dialogue turns from knowledge.

    Example:
        >>> from faithkit import Generator
        >>> generator = Generator.load("runs/...")
        >>> answer = generator.reply(knowledge="The Danube is long.", history=["Hello.", "Hi!", "Is it long?"])
        >>> answer = generator.reply(knowledge=["A first passage.", "A second one."], history=["What is known?"])
        >>> both = generator.reply(knowledge=["The Danube is long.", "Bread is baked."], history=[["How?"], ["Why?"]])
        >>> rows = [{"id": "7", "knowledge": "Bread is baked.", "history": ["How is bread made?"]}]
        >>> lines = [answer.to_dict() for answer in generator.stream(rows, progress=True)]

    An answer depends on the turn, the decoding, the precision and the engine, but not on the batch.

    Args:
        engine: Runs the model.
        encoder: Lays turns out as the model was trained on them.
        settings: How the model was trained.
        longest: Tokens of prompt and answer together that the model has places for; None for any number.
        name: Where it was loaded from.
    """

    def __init__(
        self, engine: Engine, encoder: TurnEncoder, settings: Settings, *, longest: int | None = None, name: str = ""
    ):
        self.engine, self.encoder, self.settings, self.longest, self.name = engine, encoder, settings, longest, name

    def __repr__(self) -> str:
        parts = [f"architecture={self.settings.architecture!r}", f"engine={self.engine.name!r}"]
        parts += [f"device={self.engine.device!r}", f"max_length={self.encoder.layout.max_length}"]
        if self.settings.layout.control:
            parts.append(f"control={list(self.settings.layout.control)}")
        return f"Generator({self.name!r}, {', '.join(parts)})"

    @classmethod
    @arguments.explain_keywords
    def load(
        cls,
        path: str | Path,
        *,
        engine: str = TRANSFORMERS,
        precision: str = "32-true",
        batch_size: int | None = None,
        device: str | None = None,
        max_length: int | None = None,
        memory_fraction: float | None = None,
        num_gpus: int = 1,
    ) -> "Generator":
        """Loads a generator from a run, an hf/ folder or a hub name.

        Args:
            engine: transformers (starts in seconds, supports beam search); vllm (causal models, if it is installed:
                faster over many turns, 10 to 30 s to start); or auto: vllm if it can run the model.
            precision: 32-true, bf16, or auto: bf16 if the hardware supports it.
            batch_size: Texts that are decoded together; changes the speed, not the answers. None chooses by the device.
            device: `cuda`, `cpu`, ...; None takes a GPU if there is one.
            max_length: Tokens of knowledge and history that are read; None takes the value of training.
            memory_fraction: Fraction of a GPU's memory for vLLM; None takes vLLM's default.
            num_gpus: GPUs that the model is divided over in vLLM.

        Raises:
            UserError: The path holds no generator, or the engine cannot run it.
        """
        check_engine(engine)
        path, device = arguments.read_path(path), arguments.read_device(device)
        options = LocalOptions(
            precision=precision,
            batch_size=batch_size,
            device=device,
            memory_fraction=memory_fraction,
            num_gpus=num_gpus,
        )
        loaded = load_checkpoint(path, arguments.read_count("max_length", max_length))
        if engine == AUTO:
            engine = choose_engine(lambda: loaded, device=device).name
        built, longest = ENGINES[engine](loaded, path, options)
        return cls(built, loaded.encoder, loaded.settings, longest=longest, name=path)

    @overload
    def reply(self, knowledge: Knowledge, history: History, **options: Unpack[ReplyOptions]) -> str: ...
    @overload
    def reply(
        self, knowledge: Sequence[Knowledge], history: Sequence[History], **options: Unpack[ReplyOptions]
    ) -> list[str]: ...
    @arguments.explain_keywords
    def reply(
        self, knowledge: Any, history: Any, *, decoding: Decoding | None = None, control: Sequence[str] | None = None
    ) -> str | list[str]:
        """Answers the last turn of a dialogue, or of many dialogues at once.

        A list of histories means many turns; `knowledge` then has an entry for each. Each answer equals the one that
        the turn gets alone, sampled ones too.

        Args:
            knowledge: What to answer from: a text or a list of passages, which are joined by spaces as in training.
            history: The turns, oldest first. Plain texts are alternating turns of two speakers.
            decoding: Decoding settings; greedy by default.
            control: Names of control tokens, for a model that was trained with them.

        Raises:
            UserError: The history is empty, a text is empty or no text, or the lists differ in length.
        """
        if not is_list(history):
            raise wrong("history", "a list of turns", history, TURNS_HINT)
        turns = list(history)
        if not (turns and all(is_list(turn) for turn in turns)):
            example = as_example(knowledge, turns)
            return self._texts([example], decoding, control)[example.id]
        if not is_list(knowledge):
            hint = "give knowledge as a list too: a text or a list of passages for each history"
            raise wrong("knowledge", "a list, since history is a list of histories", knowledge, hint)
        passages = list(knowledge)
        check_lengths({"knowledge": passages, "history": turns})
        rows = enumerate(zip(passages, turns, strict=True))
        examples = [as_example(*row, f"item {number}") for number, row in rows]
        texts = self._texts(examples, decoding, control)
        return [texts[example.id] for example in examples]

    @arguments.explain_keywords
    def stream(
        self,
        rows: Iterable[Example | Mapping[str, Any]],
        *,
        decoding: Decoding | None = None,
        control: Sequence[str] | None = None,
        progress: bool = False,
        chunk_size: int = CHUNK_SIZE,
    ) -> Iterator[Prediction]:
        """Answers any number of turns in their order, holding only a part of them in memory.

        `to_dict()` of what it gives is a line of a predictions file.

        Args:
            rows: Mappings with `knowledge` and `history` as `reply` takes them and perhaps `id`, or Example records.
            decoding: Decoding settings; greedy by default.
            control: Names of control tokens, for a model that was trained with them.
            progress: Shows a progress bar.
            chunk_size: Turns that are read together.
        """
        numbered = enumerate(read_iterable("rows", rows))
        chunk_size = arguments.read_count("chunk_size", chunk_size) or CHUNK_SIZE
        total, quiet = len(rows) if isinstance(rows, Sized) else None, not arguments.read_flag("progress", progress)
        with tqdm(total=total, desc="answering", disable=quiet, unit="turn") as bar:
            while chunk := list(islice(numbered, chunk_size)):
                part: list[tuple[str, Example]] = []
                for number, row in chunk:
                    if isinstance(row, Example):
                        part.append((row.id, row))
                        continue
                    place = f"row {number}"
                    if not isinstance(row, Mapping) or "knowledge" not in row or "history" not in row:
                        raise wrong("rows", "mappings that have knowledge and history", row, ROW_HINT, place)
                    id_ = row.get("id", number)
                    if isinstance(id_, bool) or not isinstance(id_, str | int) or id_ == "":
                        raise wrong("id", "text or a whole number", id_, "leave id out: rows are then numbered", place)
                    part.append((str(id_), as_example(row["knowledge"], row["history"], place)))
                texts = self._texts([example for _, example in part], decoding, control, bar.update)
                for id_, example in part:
                    yield Prediction(id=id_, text=texts[example.id])

    @arguments.explain_keywords
    def predict_examples(
        self,
        examples: Sequence[Example],
        *,
        decoding: Decoding | None = None,
        control: Sequence[str] | None = None,
        progress: bool = False,
        advance: Advance | None = None,
    ) -> Iterator[Prediction]:
        """Answers examples in their order: `text` is the response, without a label.

        The responses of the examples are not read. An example without history is answered from its knowledge alone.

        Args:
            progress: Shows a progress bar.
            advance: Is called with the number of finished examples, for the caller's progress bar.
        """
        examples, quiet = read_examples(examples), not arguments.read_flag("progress", progress)
        with tqdm(total=len(examples), desc="answering", disable=quiet, unit="turn") as bar:
            answered = self.candidates(examples, decoding=decoding, control=control, advance=advance or bar.update)
        for example, (first, *_) in zip(examples, answered, strict=True):
            yield Prediction(id=example.id, text=first.text)

    @arguments.explain_keywords
    def candidates(
        self,
        examples: Sequence[Example],
        *,
        decoding: Decoding | None = None,
        control: Sequence[str] | None = None,
        advance: Advance | None = None,
    ) -> list[list[Candidate]]:
        """Writes all samples that `decoding` asks for of each example; gives them in the examples' order."""
        examples, control = read_examples(examples), read_names("control", control)
        decoding = read_decoding(decoding) or Decoding(max_new_tokens=self.encoder.layout.max_response_length)
        tokens = control_tokens(self.encoder.layout.control, control)
        contexts = self.encoder.contexts(examples, Counter(), [tokens] * len(examples) if tokens else ())
        # An encoder-decoder's decoder reads only its prefix and the answer.
        num_read = 1 if self.encoder.decoder_prefix else int(contexts.lengths.max(initial=0))
        needed = num_read + decoding.max_new_tokens
        if self.longest is not None and needed > self.longest:
            problem = f"an answer of {decoding.max_new_tokens} tokens may need {needed} places"
            hint = f"set decoding.max_new_tokens={max(1, self.longest - num_read)} or less"
            raise UserError(f"{problem}; the model has {self.longest}", hint=hint)
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

    def _texts(
        self,
        examples: Sequence[Example],
        decoding: Decoding | None,
        control: Sequence[str] | None,
        advance: Advance | None = None,
    ) -> dict[str, str]:
        """Returns the answers by id; repeated turns are answered once."""
        unique = list({example.id: example for example in examples}.values())
        if advance and len(unique) < len(examples):
            advance(len(examples) - len(unique))
        predictions = self.predict_examples(unique, decoding=decoding, control=control, advance=advance)
        return {prediction.id: prediction.text for prediction in predictions}
