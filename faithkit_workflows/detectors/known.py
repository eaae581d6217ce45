"""Loads detectors of others by name, as faithkit/published/known_detectors.toml declares them, and runs them.

Prompts that are not in known_detectors.toml come from the user's copy: the files of the installed package
`lettucedetect`, or those of FOLDER in `checkpoint=NAME:FOLDER`.
"""

import json
import re
import runpy
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from string import Template
from typing import Any, ClassVar
from urllib.parse import urldefrag

from tqdm.auto import tqdm

from critic.entailment.checker import EntailmentChecker, split_claims
from critic.sequence.scorer import Critic
from critic.tagger.predictor import Tagger
from data_modules.datasets.lettucedetect import LABEL_SET, SUBCATEGORIES, label_of
from data_modules.encoding.encoder import question_text
from faithkit import arguments
from faithkit.detector import Detector
from faithkit.errors import UserError
from faithkit.inference.local_text import load_local
from faithkit.inference.prompts import FIELD
from faithkit.inference.text import (
    ASSISTANT,
    OPENAI,
    SYSTEM,
    USER,
    Decoding,
    Form,
    LocalOptions,
    Message,
    Request,
    TextEngine,
)
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
from faithkit.records import (
    FAITHFUL,
    HALLUCINATED,
    RELATIONS,
    UNPARSED,
    UNTYPED,
    Example,
    Prediction,
    Span,
    span_type,
    split_passages,
)
from faithkit.weights.resolve import hash_folder, hub_file, hub_in_reach
from judge.judge import Judge
from judge.options import AskOptions, PromptHeader
from judge.prompt import PromptTemplate
from judge.questions import weigh_or_write
from judge.reply import read_pattern, without_thoughts

SERVERS = ("http://", "https://")
REQUESTS_AT_ONCE = 256  # responses per batch of requests
PACKAGE, PROMPTS, CARD = "lettucedetect", "prompts", "README.md"
INSTALL = f"pip install --no-deps {PACKAGE}"
FIELDS = {"question": "{question}", "num_passages": "{num_passages}", "context": "{passages}", "text": "{passages}"}
QUOTED_SYSTEM = re.compile(r'^SYSTEM = """(.+?)"""', re.DOTALL | re.MULTILINE)  # in the example of a model card
SPANS, TEXT, CATEGORY, SUBCATEGORY = "hallucinated_spans", "text", "category", "subcategory"
FIELDS_OF_SPAN = {
    TEXT: {"type": "string"},
    CATEGORY: {"enum": [*RELATIONS]},
    SUBCATEGORY: {"enum": [*SUBCATEGORIES, "unspecified"]},
}
ITEMS = {"type": "object", "properties": FIELDS_OF_SPAN, "required": [*FIELDS_OF_SPAN], "additionalProperties": False}
SCHEMA = {
    "type": "object",
    "properties": {SPANS: {"type": "array", "items": ITEMS}},
    "required": [SPANS],
    "additionalProperties": False,
}


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


def add_prompts(known: PassageTagger, folder: str) -> PassageTagger:
    """Adds the prompts of a detector's language from FOLDER/prompts or the installed package.

    Raises:
        UserError: The files are in neither.
    """
    if not known.prompts:
        return known
    for place in ([Path(folder).expanduser() / PROMPTS] if folder else []) + _package_prompts():
        files = [place / f"{kind}_prompt_{known.prompts}.txt" for kind in ("qa", "summary")]
        if all(file.is_file() for file in files):
            texts = [Template(file.read_text(encoding="utf-8")).safe_substitute(FIELDS) for file in files]
            return replace(known, prompt=texts[0], prompt_without_question=texts[1])
    names = f"qa_prompt_{known.prompts}.txt and summary_prompt_{known.prompts}.txt"
    problem = f"{known.name} reads prompts in its language, which are not part of faithkit"
    hint = f"{INSTALL}, or checkpoint={known.name}:FOLDER with {names} of that package in FOLDER/{PROMPTS}"
    raise UserError(problem, hint=hint)


def find_system_prompt(known: SpanLister, folder: str) -> str:
    """Finds the system prompt that a language model was trained with: in its model card, or in the installed package.

    Args:
        folder: A folder with the card, README.md; anything else for the card of the hub.

    Raises:
        UserError: It is in neither.
    """
    card = Path(folder).expanduser() / CARD if folder and "://" not in folder else hub_file(known.hub, CARD)
    if card is not None and card.is_file() and (found := QUOTED_SYSTEM.search(card.read_text(encoding="utf-8"))):
        return found[1]
    for place in _package_prompts():
        if (module := place / "generative.py").is_file():
            return str(runpy.run_path(str(module))["SYSTEM_BASE"])
    if card is None and hub_in_reach():
        from huggingface_hub import hf_hub_download

        if found := QUOTED_SYSTEM.search(Path(hf_hub_download(known.hub, CARD)).read_text(encoding="utf-8")):
            return found[1]
    problem = f"{known.name} needs the system prompt of its authors, which is not part of faithkit"
    hint = f"{INSTALL}, or set HF_HOME to a cache with the card of {known.hub} ({CARD})"
    raise UserError(problem, hint=hint)


def _package_prompts() -> list[Path]:
    """Returns the folder of prompts in the installed package, which is not imported; none if it is missing."""
    spec = find_spec(PACKAGE)
    return [Path(place) / PROMPTS for place in (spec.submodule_search_locations if spec else None) or ()]


def write_prompt(known: PassageTagger | SpanLister, example: Example) -> str:
    """Writes the prompt of an example around its passages, question and response."""
    passages, question = split_passages(example.knowledge), question_text(example)
    values = {
        "question": question,
        "num_passages": str(len(passages)),
        "passages": "\n".join(f"{known.passage} {number}: {text}" for number, text in enumerate(passages, start=1)),
        "knowledge": "\n\n".join(passages),
        "response": example.response,
    }
    text = known.prompt if question else known.prompt_without_question
    return FIELD.sub(lambda match: values[match[1]], text)


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


@dataclass(eq=False, repr=False)
class SpanJudge:
    """A language model that lists the unsupported texts of a response, each with a category and a subcategory.

    A response of which it lists a text is hallucinated, also where the text is not in the response: such texts mark
    nothing and are counted in `num_unlocated`. There are no probabilities.
    """

    known: SpanLister
    engine: TextEngine
    system: str
    num_unlocated: int = field(default=0, init=False)
    numbers_passages: ClassVar[bool] = True

    def __repr__(self) -> str:
        return f"SpanJudge({self.known.name!r})"

    @arguments.explain_keywords
    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields the predictions of the examples, in order; `text` is the reply, or the reason for its absence."""
        examples = arguments.read_examples(examples)
        quiet = not arguments.read_flag("progress", progress)
        decoding = Decoding(max_new_tokens=self.known.new_tokens)
        options: dict[str, Any] = {"always_write": True, "title": None if quiet else "marking"}
        found = weigh_or_write(self.engine, examples, self.messages, None, decoding, Form(schema=SCHEMA), **options)
        for example, (_, reply) in found:
            assert reply is not None, "every prompt is answered"
            if not reply.texts:
                yield Prediction(id=example.id, label=UNPARSED, text=reply.problem, failed=True)
                continue
            items = read_span_list(reply.texts[0])
            spans, num_missed = locate_in_order(items or (), example.response)
            self.num_unlocated += num_missed
            label = UNPARSED if items is None else HALLUCINATED if items else FAITHFUL
            yield Prediction(id=example.id, label=label, spans=spans, text=reply.texts[0])

    def messages(self, example: Example) -> tuple[Message, ...]:
        """Writes the messages about an example."""
        return Message(SYSTEM, self.system), Message(USER, write_prompt(self.known, example))


def read_span_list(reply: str) -> list[tuple[str, str]] | None:
    """Parses the first JSON object of a reply: texts with their labels; None where it is malformed or cut off.

    >>> read_span_list('{"hallucinated_spans": [{"text": "1920", "category": "contradiction"}]}')
    [('1920', 'contradiction')]
    """
    text = without_thoughts(reply)
    try:
        values, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
        items = values[SPANS]
        if not isinstance(items, list) or not all(isinstance(item[TEXT], str) for item in items):
            return None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    found = []
    for item in items:
        category, element = item.get(CATEGORY), item.get(SUBCATEGORY)
        label = label_of(category, element if element in SUBCATEGORIES else "") if category in RELATIONS else UNTYPED
        found.append((item[TEXT], label))
    return found


def locate_in_order(items: Sequence[tuple[str, str]], response: str) -> tuple[tuple[Span, ...], int]:
    """Finds listed texts in a response; returns spans by their place, and the number of texts that are not there.

    Replies list texts in the order of the response. So a text is found behind the one before it, or, if it is not
    there, at the first place that no other one marks.

    >>> spans, _ = locate_in_order([("It has 10 rooms", "a"), ("10", "b")], "It has 10 rooms and 10 pools.")
    >>> [(span.start, span.label) for span in spans]
    [(0, 'a'), (20, 'b')]
    """
    spans: list[Span] = []
    end, num_missed = 0, 0
    for text, label in items:
        begin = response.find(text, end) if text.strip() else -1
        if begin < 0 and text.strip():
            places = (match.start() for match in re.finditer(f"(?={re.escape(text)})", response))
            free = (
                place for place in places if all(place >= one.end or place + len(text) <= one.start for one in spans)
            )
            begin = next(free, -1)
        if begin < 0:
            num_missed += 1
            continue
        end = begin + len(text)
        spans.append(Span(start=begin, end=end, label=label, text=text, **span_type(LABEL_SET, label)))
    return tuple(sorted(spans, key=lambda span: span.start)), num_missed
