"""Answers with a trained generator: one turn or many, the same whatever is answered beside it.

from faithkit import Generator
Generator.load("runs/...").reply(knowledge="...", history=["Have you heard of ...?"])
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, overload

from tqdm.auto import tqdm

from data_modules.encoding.turns import TurnEncoder
from faithkit import arguments
from faithkit.arguments import read_examples, read_iterable, read_names
from faithkit.inference.decoding import Decoding, Engine, read_decoding
from faithkit.records import Example, Prediction
from generation.arguments import History, Knowledge, as_examples, row_as_example
from generation.engines import AUTO, ENGINES, TRANSFORMERS, EngineOptions, check_engine, choose_engine
from generation.load_checkpoint import load_checkpoint
from generation.prompts import build_prompts
from generation.settings import Settings

AT_A_TIME = 1024  # turns that a stream reads before the first of them is answered
Advance = Callable[[int], object]  # called with the number of examples that were just answered
Row = Example | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of several answers to a turn.

    Args:
        logprob: Sum of its tokens' log-probabilities under the model's own distribution.
        finished: The model ended it; otherwise it was cut at max_new_tokens.
    """

    text: str
    logprob: float
    finished: bool

    def to_dict(self) -> dict[str, Any]:
        """Gives the fields as plain values, for JSON."""
        return asdict(self)


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

    What is written depends on the turn, the decoding, the precision and the engine, never on the batch.

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
            engine: transformers (ours, which starts in seconds and searches beams); vllm (causal models, where it is
                installed: faster over many turns, 10 to 30 s to start); or auto, vllm wherever it can run the model.
            precision: 32-true, bf16, or auto: bf16 where the hardware computes in it.
            batch_size: Texts at a time; changes the speed, not the answers. None takes what suits the device.
            device: `cuda`, `cpu`, ...; None takes the GPU where there is one.
            max_length: Tokens of knowledge and history that are read, in place of those that it was trained with.
            memory_fraction: Share of a GPU's memory that vLLM takes; None leaves it to vLLM.
            num_gpus: GPUs that share the model in vLLM; our engine takes one.

        Raises:
            UserError: The path holds no generator, or the engine cannot run it.
        """
        check_engine(engine)
        path, device = arguments.read_path(path), arguments.read_device(device)
        options = EngineOptions(
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
    def reply(
        self,
        knowledge: Knowledge,
        history: History,
        *,
        decoding: Decoding | None = None,
        control: Sequence[str] | None = None,
    ) -> str: ...
    @overload
    def reply(
        self,
        knowledge: Sequence[Knowledge],
        history: Sequence[History],
        *,
        decoding: Decoding | None = None,
        control: Sequence[str] | None = None,
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
            history: What was said, oldest first. Plain texts are read as two people's turns, the asker's last.
            decoding: How tokens are chosen; greedy where it is not given.
            control: Names of control tokens, for a model that was trained with them.

        Raises:
            UserError: Nothing was said, something is no text, or the lists differ in length.
        """
        single, examples = as_examples(knowledge, history)
        texts = self._texts(examples, decoding, control)
        answers = [texts[example.id] for example in examples]
        return answers[0] if single else answers

    @arguments.explain_keywords
    def stream(
        self,
        rows: Iterable[Row],
        *,
        decoding: Decoding | None = None,
        control: Sequence[str] | None = None,
        progress: bool = False,
        at_a_time: int = AT_A_TIME,
    ) -> Iterator[Prediction]:
        """Answers any number of turns in their order, holding only a part of them in memory.

        `to_dict()` of what it gives is a line of a predictions file.

        Args:
            rows: Mappings with `knowledge` and `history` as `reply` takes them and perhaps `id`, or Example records.
            decoding: How tokens are chosen; greedy where it is not given.
            control: Names of control tokens, for a model that was trained with them.
            progress: Shows a bar.
            at_a_time: Turns that are read before the first of them is answered.
        """
        numbered, at_a_time = (
            enumerate(read_iterable("rows", rows)),
            arguments.read_count("at_a_time", at_a_time) or AT_A_TIME,
        )
        total, quiet = len(rows) if isinstance(rows, Sized) else None, not arguments.read_flag("progress", progress)
        with tqdm(total=total, desc="answering", disable=quiet, unit="turn") as bar:
            while part := [row_as_example(row, number) for number, row in islice(numbered, at_a_time)]:
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
        """Answers examples in their order: `text` is the response, which nobody has judged.

        Their own responses are not looked at. An example without a history is answered from its knowledge alone.

        Args:
            progress: Shows a bar.
            advance: Is told of progress, for a bar of the caller's own.
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
        prompts = build_prompts(self.encoder, examples, control=control, decoding=decoding, longest=self.longest)
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
        """Answers by the examples' ids; a turn that stands there twice is answered once."""
        once = list({example.id: example for example in examples}.values())
        if advance and len(once) < len(examples):
            advance(len(examples) - len(once))
        said = self.predict_examples(once, decoding=decoding, control=control, advance=advance)
        return {prediction.id: prediction.text for prediction in said}
