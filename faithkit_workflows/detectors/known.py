"""Loads detectors of others by name, as faithkit/published/known_detectors.toml declares them, and runs them."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urldefrag

from tqdm.auto import tqdm

from critic.entailment.checker import EntailmentChecker, split_claims
from critic.sequence.scorer import Critic
from critic.tagger.predictor import Tagger
from faithkit import arguments
from faithkit.detector import Detector
from faithkit.errors import UserError
from faithkit.inference.local_text import load_local
from faithkit.inference.text import ASSISTANT, OPENAI, Decoding, LocalOptions, Message, Request, TextEngine
from faithkit.inference.text_engines import EngineOptions, build_text_engine
from faithkit.provenance.used_model import UsedModel
from faithkit.published.known_detectors import (
    FIRST_WORD,
    SENTENCES,
    THRESHOLD,
    KnownDetector,
    KnownLanguageModel,
    PairClassifier,
    PassageTagger,
    PromptedJudge,
    SpanLister,
    TemplateJudge,
    WindowChecker,
    known_detectors,
)
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.weights.resolve import hash_folder, hub_file, hub_in_reach
from faithkit_workflows.detectors.span_judge import SpanJudge, add_prompts, find_system_prompt, write_prompt
from judge.judge import Judge
from judge.options import AskOptions, PromptHeader
from judge.prompt import PromptTemplate
from judge.reply import read_pattern

SERVERS = ("http://", "https://")
REQUESTS_AT_ONCE = 256  # responses per batch of requests


class KnownLoader:
    """Loads and describes the detector of a name; the class of their `DetectorKind`s."""

    @classmethod
    def load(cls, path: str, *, name: str, precision: str = "32-true", batch_tokens: int | None = None) -> Detector:
        """Loads a detector.

        Args:
            path: A folder with a copy of its hub repository, the URL of a server, or empty for the hub.
            name: Its name in known_detectors.toml.

        Raises:
            UserError: It cannot be found or loaded.
        """
        known = known_detectors()[name]
        detector: Any = None
        if isinstance(known, KnownLanguageModel):
            if path.startswith(SERVERS):
                url, model = urldefrag(path)
                engine = build_text_engine(EngineOptions(name=OPENAI, model=model or known.hub, base_url=url))
            elif known.served and not path:
                hint = f"serve {known.hub}, for instance with vLLM, and checkpoint={known.name}:http://HOST:8000/v1"
                raise UserError(f"{known.name} runs on a server: {known.served}, which is not run here", hint=hint)
            else:
                engine = load_local(find_source(known, path), LocalOptions(precision=precision))
        elif path.startswith(SERVERS):
            problem = f"{known.name} does not run on a server"
            hint = f"checkpoint={known.name}, or checkpoint={known.name}:FOLDER"
            raise UserError(problem, place=path, hint=hint)
        else:
            source = find_source(known, path)
            options: dict[str, Any] = {"precision": precision, "batch_tokens": batch_tokens}
        match known:
            case PassageTagger():
                detector = PromptedTagger(add_prompts(known, path), Tagger.load(source, **options))
            case PairClassifier():
                detector = Critic.load(source, labels=dict(known.labels.items()), **options)
            case WindowChecker():
                base = find_source(known, path, known.base) if known.base else ""
                detector = EntailmentChecker.load(known, source, base, **options)
            case SpanLister():
                detector = SpanJudge(known, engine, find_system_prompt(known, path))
            case TemplateJudge():
                detector = GuardianChecker(known, engine)
            case PromptedJudge():
                header = PromptHeader(reply=known.reply, hallucinated=known.hallucinated, faithful=known.faithful)
                template = PromptTemplate(known.prompt, system=known.system, name=known.name, header=header)
                asking = AskOptions(max_new_tokens=known.new_tokens or None)
                judge = Judge(engine, asking, template=template, name=known.name)
                detector = ClaimJudge(known, judge) if known.claims == SENTENCES else judge
        detector.languages = tuple(known.languages)
        return detector

    @classmethod
    def describe(cls, path: str, role: str, *, name: str) -> UsedModel:
        """Describes a detector for the record of where predictions come from."""
        known, folder = known_detectors()[name], Path(path).expanduser() if path else None
        if folder is None and (file := hub_file(known.hub)):
            folder = file.parent
        has_threshold = not isinstance(known, KnownLanguageModel) or known.reply == FIRST_WORD
        return UsedModel(
            role=role,
            path=f"{name}:{path}" if path else name,
            kind=name,
            weights=hash_folder(folder) if folder and folder.is_dir() else None,
            threshold=f"{THRESHOLD}, as {known.hub} is used" if has_threshold else None,
            reason="others trained it, and its rows are not recorded",
        )


def find_source(known: KnownDetector, argument: str, base: str = "") -> str:
    """Finds a repository of a detector: a folder for `NAME:FOLDER`, else its hub name if it can be loaded.

    Args:
        known: The detector's declaration.
        argument: What follows the name.
        base: Finds this repository instead, as the folder `base` in FOLDER, or on the hub.

    Raises:
        UserError: There is no such folder, or it is not in the cache and the hub was not reached.
    """
    folder = Path(argument).expanduser()
    if argument and not folder.is_dir():
        hint = f"checkpoint={known.name}:FOLDER with a copy of {known.hub}, or checkpoint={known.name} for the hub"
        raise UserError(f"{argument} is not a folder", place=f"{known.name}:{argument}", hint=hint)
    if argument and (not base or (folder / "base").is_dir()):
        return str(folder / "base" if base else folder)
    wanted = base or known.hub
    if hub_file(wanted, *((known.file,) if known.file and not base else ())) or hub_in_reach():
        return wanted
    where = f"{argument}/base with a copy of it" if argument else f"checkpoint={known.name}:FOLDER with a copy of it"
    problem = f"{known.name} needs {wanted} of the model hub, which was not reached"
    raise UserError(problem, hint=f"give {where}, or set HF_HOME to a cache with it")


class ClaimJudge:
    """A judge that is asked about each sentence of a response; the least supported sentence decides."""

    def __init__(self, known: PromptedJudge, judge: Judge):
        self.known, self.judge, self.engine = known, judge, judge.engine

    def set_threshold(self, threshold: float) -> None:
        """Sets the probability from which a response is labelled hallucinated; the judge may be in use elsewhere."""
        self.judge = copy(self.judge)
        self.judge.set_threshold(threshold)

    def __repr__(self) -> str:
        return f"ClaimJudge({self.known.name!r}, threshold={self.judge.calibration.threshold:.4g})"

    @arguments.explain_keywords
    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields the predictions of the examples, in their order."""
        examples = arguments.read_examples(examples)
        claims = [split_claims(one.response, self.known.claims) for one in examples]
        asked = [
            replace(one, response=claim, spans=None) for one, own in zip(examples, claims, strict=True) for claim in own
        ]
        judged = self.judge.predict_examples(asked, progress=progress)
        for example, own in zip(examples, claims, strict=True):
            found = list(islice(judged, len(own)))
            labels, scores = {one.label for one in found}, [one.score for one in found if one.score is not None]
            # A sentence without a verdict counts only if none is hallucinated.
            label = next(label for label in (HALLUCINATED, UNPARSED, FAITHFUL) if label in labels)
            score = max(scores) if len(scores) == len(found) else None
            lost = [one.text for one in found if one.failed] if label == UNPARSED else []
            yield Prediction(id=example.id, label=label, score=score, text=(lost or [""])[0], failed=bool(lost))


@dataclass(eq=False, repr=False)
class GuardianChecker:
    """A model whose chat template writes the question about a response and the documents (Granite Guardian)."""

    known: TemplateJudge
    engine: TextEngine

    def __repr__(self) -> str:
        return f"GuardianChecker({self.known.name!r})"

    @arguments.explain_keywords
    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields the predictions of the examples, in order; `text` is the reply, or the reason for its absence."""
        examples = arguments.read_examples(examples)
        decoding = Decoding(max_new_tokens=self.known.new_tokens)
        quiet = not arguments.read_flag("progress", progress)
        for begin in tqdm(range(0, len(examples), REQUESTS_AT_ONCE), "checking", disable=quiet, unit="chunk"):
            chunk = examples[begin : begin + REQUESTS_AT_ONCE]
            requests = [
                Request(
                    str(number),
                    (Message(ASSISTANT, example.response),),
                    {**self.known.template, "documents": [{"doc_id": "0", "text": example.knowledge}]},
                )
                for number, example in enumerate(chunk)
            ]
            replies = {reply.id: reply for reply in self.engine.generate(requests, decoding)}
            for request, example in zip(requests, chunk, strict=True):
                reply = replies[request.id]
                text = reply.texts[0] if reply.texts else reply.problem
                words = self.known.hallucinated, self.known.faithful
                label = read_pattern(text, words) if reply.texts else UNPARSED
                yield Prediction(id=example.id, label=label, text=text, failed=not reply.texts)


@dataclass(eq=False, repr=False)
class PromptedTagger:
    """A tagger that reads a prompt around question and passages.

    Prompts beyond the model's length are read in windows, and a token takes its lowest probability of them.
    """

    known: PassageTagger
    tagger: Tagger
    numbers_passages: ClassVar[bool] = True

    def set_threshold(self, threshold: float) -> None:
        """Sets the probability from which a response is labelled hallucinated; the tagger may be in use elsewhere."""
        self.tagger = copy(self.tagger)
        self.tagger.set_threshold(threshold)

    @property
    def threshold(self) -> float:
        """The probability from which a response is labelled hallucinated."""
        return self.tagger.threshold

    def __repr__(self) -> str:
        return f"PromptedTagger({self.known.name!r}, {self.tagger!r})"

    @arguments.explain_keywords
    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields the predictions of the examples, in their order."""
        prompted = [
            replace(one, knowledge=write_prompt(self.known, one), history=())
            for one in arguments.read_examples(examples)
        ]
        return self.tagger.predict_examples(prompted, progress=progress)

    @property
    def model(self) -> Any:
        """The tagger's model."""
        return self.tagger.model

    @property
    def device(self) -> Any:
        """The model's device."""
        return self.tagger.device
