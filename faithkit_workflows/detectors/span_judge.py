"""The prompts of known detectors, and the language model that lists unsupported texts.

Prompts that are not in known_detectors.toml come from the user's copy: the files of the installed package
`lettucedetect`, or those of FOLDER in `checkpoint=NAME:FOLDER`.
"""

import json
import re
import runpy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any, ClassVar

from data_modules.datasets.lettucedetect import LABEL_SET, SUBCATEGORIES, label_of
from data_modules.encoding.encoder import question_text
from faithkit import arguments
from faithkit.errors import UserError
from faithkit.inference.prompts import FIELD
from faithkit.inference.text import SYSTEM, USER, Decoding, Form, Message, TextEngine
from faithkit.published.known_detectors import PassageTagger, SpanLister
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
from faithkit.weights.resolve import hub_file, hub_in_reach
from judge.questions import weigh_or_write
from judge.reply import without_thoughts

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
