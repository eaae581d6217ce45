"""Defines the public class `Judge`: a language model that decides whether a response is hallucinated, where and why."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Unpack, overload

from data_modules.reading.fields import read_history
from faithkit import arguments
from faithkit.arguments import (
    ManyResponses,
    OneResponse,
    read_examples,
    read_passages,
    read_text,
    wrong,
)
from faithkit.calibration import ScoreCalibration, logit
from faithkit.detector import JUDGE
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import Sidecar, read_settings
from faithkit.inference.text import NUCLEUS, Decoding, TextEngine
from faithkit.languages import ANY
from faithkit.provenance.used_model import trained_languages
from faithkit.records import FAITHFUL, HALLUCINATED, LABELS, UNPARSED, Example, Prediction
from faithkit.settings.check import check_value, options, read_stored
from faithkit.settings.types import OneOf, Tokens
from faithkit.weights.resolve import fetch_folder
from judge.options import TRAINABLE, AskOptions
from judge.prompt import Prompts, PromptTemplate, build_prompts
from judge.questions import weigh_or_write
from judge.reply import declared_asking

PROMPT = ("text", "system", "name")  # stored fields of a template, without few-shot examples
DEFAULT, UNCALIBRATED = AskOptions(), ScoreCalibration()


@options("layout")
class Settings:
    """The settings that a judge was trained and calibrated with.

    Args:
        ask: The kind of reply.
        template: The prompt of its training.
        max_length: Tokens of prompt and reply in training.
        origin: Base weights, data with their fingerprint, and versions.
    """

    ask: Annotated[str, OneOf(TRAINABLE)]
    template: PromptTemplate
    max_length: Tokens
    calibration: ScoreCalibration
    origin: dict[str, Any]

    def to_sidecar(self) -> Sidecar:
        """Converts the settings to the form of `faithkit.json`."""
        layout = {
            "ask": self.ask,
            "max_length": self.max_length,
            "prompt": {name: getattr(self.template, name) for name in PROMPT},
        }
        thresholds = asdict(self.calibration)
        return Sidecar(kind=JUDGE, labels=list(LABELS), layout=layout, thresholds=thresholds, origin=self.origin)

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        """Reads the settings of `faithkit.json`."""
        if tuple(sidecar.labels) != LABELS:
            raise UserError(f"labels are {shorten(sidecar.labels)}, and a judge's are {', '.join(LABELS)}")
        layout = sidecar.layout
        prompt = layout["prompt"]
        check_value("layout.prompt", prompt, dict[str, str])
        if prompt.keys() != set(PROMPT):
            raise UserError(f"layout.prompt has {shorten(', '.join(prompt))}, and not {', '.join(PROMPT)}")
        calibration = read_stored(ScoreCalibration, sidecar.thresholds, "thresholds")
        return cls(
            ask=layout["ask"],
            template=PromptTemplate(**prompt),
            max_length=layout["max_length"],
            calibration=calibration,
            origin=sidecar.origin,
        )


def stored_judge(path: str) -> tuple[str, Settings | None]:
    """Finds a trained judge by its run or hf/ folder, or any model by folder, local or hub name.

    Returns:
        A folder or a name for an engine, and the settings of its training; None for an external model.
    """
    folder = fetch_folder(path)
    settings = read_settings(folder, JUDGE, Settings.from_sidecar) if folder else None
    return str(folder or path), settings


class Judge:
    """Judges responses with a language model.

        from faithkit import Judge
        judge = Judge.load("smollm2-135m")
        judge.judge(knowledge="The Danube flows through ten countries.", response="It flows through twelve.")

    The judgement of a response does not depend on its batch. With `ask="verdict"`, the default, nothing is generated:
    the probabilities of Yes and No decide. With the other values the model generates a reply, which is parsed
    strictly: a reply without a verdict is `unparsed`.

    Args:
        engine: Runs the model locally or on a server.
        template: The prompt, or prompts by task; None takes those of `options`, with the examples of its file.
        calibration: Converts the model's probabilities to P(hallucinated) and labels.
        name: The model's name in `repr`.

    Attributes:
        languages: Those that it reads (`faithkit.languages`): of its training, else any.
    """

    def __init__(
        self,
        engine: TextEngine,
        options: AskOptions = DEFAULT,
        *,
        template: PromptTemplate | Prompts | None = None,
        calibration: ScoreCalibration = UNCALIBRATED,
        name: str = "",
    ):
        self.engine, self.options, self.calibration = engine, options, calibration
        given = Prompts(options.ask, template) if isinstance(template, PromptTemplate) else template
        self.prompts = given or build_prompts(options)
        self.asking = declared_asking(self.prompts.ask, self.prompts.each[0].header)
        self.name = name or engine.identity
        self.languages: tuple[str, ...] = (ANY,)
        self.num_unlocated = 0  # quoted parts that were not found in their responses, over all judgements

    @classmethod
    @arguments.explain_keywords
    def load(
        cls,
        model: str | Path | TextEngine,
        *,
        ask: str | None = None,
        prompts: str | None = None,
        num_samples: int = 1,
        max_new_tokens: int | None = None,
        examples: str | None = None,
        engine: str = "transformers",
        precision: str = "auto",
        device: str | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        max_length: int | None = None,
    ) -> "Judge":
        """Loads a trained judge by its run, hf/ folder or hub name, any causal model by folder or name, or an engine.

        Args:
            ask: verdict, judgement, steps or spans; None takes the value of the judge's training, or else verdict.
            prompts: A folder with other prompts.
            num_samples: Replies to each prompt; the majority decides.
            max_new_tokens: Maximum length of a reply; None takes the default of `ask`.
            examples: A file with examples for the prompt (judge/prompt.py).
            engine: transformers, or vllm if it is installed.
            precision: 32-true, bf16, or auto: bf16 if the hardware supports it.
            batch_tokens: Has no effect, because the engine plans its batches; accepted as by every detector.
            max_length: Tokens of prompt and reply; None takes the model's maximum.
        """
        options = AskOptions(prompts=prompts, examples=examples, num_samples=num_samples, max_new_tokens=max_new_tokens)
        arguments.read_count("batch_tokens", batch_tokens)
        if not isinstance(model, str | Path):
            if not all(hasattr(model, name) for name in ("identity", "generate", "weigh")):
                raise wrong("model", "a text, a Path or an engine", model, "give a run, a folder, a name or an engine")
            return cls(model, options if ask is None else replace(options, ask=ask))
        from faithkit.inference.local_text import load_local
        from faithkit.inference.text import LocalOptions

        path = arguments.read_path(model, "model")
        source, settings = stored_judge(path)
        local = LocalOptions(
            engine=engine, precision=precision, device=device, batch_size=batch_size, max_length=max_length
        )
        trained_ask = settings.ask if settings else DEFAULT.ask
        options = replace(options, ask=trained_ask if ask is None else ask)
        return cls.trained(load_local(source, local), settings, options, name=path)

    @classmethod
    def trained(
        cls,
        engine: TextEngine,
        settings: Settings | None,
        options: AskOptions,
        *,
        shots: Sequence[Example] = (),
        name: str = "",
    ) -> "Judge":
        """Makes a judge from a model that may have been trained as a judge.

        Its trained prompt and calibration are used if it is prompted as in training.

        Args:
            settings: The settings of its training; None for an external model.
            shots: Examples in the prompt, if the options name no file.
        """
        if settings and settings.ask == options.ask and options.prompts is None and options.examples is None:
            judge = cls(engine, options, template=settings.template, calibration=settings.calibration, name=name)
        else:
            judge = cls(engine, options, template=build_prompts(options, shots), name=name)
        if settings:
            judge.languages = trained_languages(settings.origin)
        return judge

    def set_threshold(self, threshold: float) -> None:
        """Sets the probability from which a response is labelled hallucinated.

        Raises:
            UserError: The judge writes its verdicts instead of weighing two answers.
        """
        if not self.weighs:
            problem = "threshold: this judge writes its verdicts, and has no probabilities"
            raise UserError(problem, hint="leave threshold out, or set judge: {ask: verdict}")
        self.calibration = replace(self.calibration, threshold=threshold)

    def __repr__(self) -> str:
        return f"Judge({self.name!r}, ask={self.options.ask!r}, threshold={self.calibration.threshold:.4g})"

    @overload
    def judge(
        self,
        knowledge: str | Sequence[str] | None,
        response: str,
        history: Any = None,
        *,
        question: str | None = None,
        progress: bool = ...,
    ) -> Prediction: ...
    @overload
    def judge(
        self,
        knowledge: Sequence[Any],
        response: list[str],
        history: Any = None,
        *,
        question: Sequence[str | None] | None = None,
        progress: bool = ...,
    ) -> list[Prediction]: ...
    @overload
    def judge(self, *, progress: bool = ..., **names: Unpack[OneResponse]) -> Prediction: ...
    @overload
    def judge(self, *, progress: bool = ..., **names: Unpack[ManyResponses]) -> list[Prediction]: ...
    @arguments.explain_overloads
    def judge(
        self, knowledge: Any, response: Any, history: Any = None, *, progress: bool = True
    ) -> Prediction | list[Prediction]:
        """Judges one response, or a list of responses.

        Args:
            knowledge: A text or a list of passages; for a list of responses a list of these.
            history: The turns before the response, the oldest first; for a list of responses a list of these.
            progress: Shows a progress bar for a list.
        """
        arguments.read_flag("progress", progress)
        is_single, examples = isinstance(response, str), []
        for number, (known, text, turns) in enumerate(arguments.read_rows(knowledge, response, history)):
            place = f"item {number}"
            # Judges also read dialogues without knowledge.
            is_empty = known is None or (isinstance(known, str) and not known.strip()) or known in ([], ())
            earlier = [turns] if isinstance(turns, str) else turns
            examples.append(
                Example(
                    id=str(number),
                    source="judge",
                    split="judge",
                    group=str(number),
                    knowledge="" if is_empty else "\n".join(read_passages("knowledge", known, place)),
                    history=() if earlier is None else read_history(earlier, place),
                    response=read_text("response", text, place),
                )
            )
        judged = list(self.predict_examples(examples, progress=progress and not is_single))
        return judged[0] if is_single else judged

    @arguments.explain_keywords
    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields one prediction for each example, in order; `text` is the reply, or the reason for its absence."""
        examples = read_examples(examples)
        arguments.read_flag("progress", progress)
        asking, options = self.asking, self.options
        decoding = Decoding(max_new_tokens=options.max_new_tokens or asking.new_tokens)
        if options.num_samples > 1:
            decoding = replace(
                decoding, strategy=NUCLEUS, top_p=1.0, temperature=options.temperature, num_samples=options.num_samples
            )
        found = weigh_or_write(
            self.engine,
            examples,
            self.prompts.messages,
            asking.choices if options.num_samples == 1 else None,
            decoding,
            None if options.written else asking.form,
            always_write=not self.weighs,
            title="judging" if progress else None,
        )
        for example, (weighed, written) in found:
            probability = None
            if weighed and weighed.probabilities:
                assert asking.choices is not None, "probabilities need choices"
                odds = logit([weighed.probabilities[asking.choices[0]]])
                [probability] = self.calibration.scores(odds).tolist()
            if written is None:
                assert weighed is not None, "every prompt has a result"
                if probability is None:
                    yield Prediction(id=example.id, label=UNPARSED, text=weighed.problem, failed=True)
                else:
                    yield Prediction(id=example.id, label=self.calibration.label(probability), score=probability)
                continue
            if not written.texts:
                yield Prediction(id=example.id, label=UNPARSED, text=written.problem, failed=True)
                continue
            replies = [asking.parse(text, example.response) for text in written.texts]
            chosen = replies[0]
            votes = Counter(one.label for one in replies)
            parsed = votes[HALLUCINATED] + votes[FAITHFUL]
            if len(replies) > 1 and parsed:
                label = HALLUCINATED if 2 * votes[HALLUCINATED] >= parsed else FAITHFUL
                chosen = next(one for one in replies if one.label == label)
                probability = votes[HALLUCINATED] / parsed
            self.num_unlocated += chosen.num_unlocated
            yield Prediction(
                id=example.id,
                label=chosen.label,
                score=probability,
                spans=tuple(replace(span, text=example.response[span.start : span.end]) for span in chosen.spans),
                text=chosen.text,
                reason=chosen.rationale,
            )

    @property
    def weighs(self) -> bool:
        """Whether the label follows from the probability of the verdict, without generation."""
        options = self.options
        is_verdict = options.ask == DEFAULT.ask and self.asking.choices is not None
        return is_verdict and options.num_samples == 1 and not options.written
