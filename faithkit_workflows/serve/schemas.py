"""The requests and replies of the service's own routes, and its refusals.

A refusal has a status, a code for programs, the field that is wrong, and a sentence that helps.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    Tag,
    create_model,
    model_serializer,
    model_validator,
)

from data_modules.reading.conversations import NO_EVIDENCE, read_conversation
from data_modules.reading.rows import BadRow, ReadReport
from data_modules.reading.rows import Row as RawRow
from faithkit.records import CALLS, Element, Example, Relation, Turn

# Every code with its status; documentation and tests read this table.
STATUSES = {
    "invalid_http": 400,
    "invalid_json": 400,
    "unknown_host": 400,
    "missing_key": 401,
    "wrong_key": 401,
    "not_found": 404,
    "unknown_model": 404,
    "unknown_job": 404,
    "method_not_allowed": 405,
    "body_timeout": 408,
    "job_unfinished": 409,
    "body_too_large": 413,
    "encoded_body": 415,
    "wrong_content_type": 415,
    "invalid_request": 422,
    "language_not_read": 422,
    "row_too_large": 422,
    "threshold_not_supported": 422,
    "too_many_rows": 422,
    "rate_limited": 429,
    "internal_error": 500,
    "no_verdict": 502,
    "jobs_off": 403,
    "job_host": 403,
    "draining": 503,
    "loading": 503,
    "queue_full": 503,
    "disk_full": 507,
    "timeout": 504,
}


class ErrorBody(BaseModel):
    """What is wrong with a request."""

    code: str = Field(description="For programs.", examples=["invalid_request"])
    message: str = Field(description="What is wrong.")
    field: str | None = Field(default=None, description="Where it is, such as rows.3.response.")
    help: str = Field(description="What to do.")
    request_id: str | None = None


class ErrorReply(BaseModel):
    """The body of every refusal."""

    error: ErrorBody


class Problem(Exception):
    """Refuses a request.

    Args:
        code: A key of `STATUSES`.
        message: What is wrong, in one sentence.
        help: What to do, in one sentence.
        field: The part of the request.
        retry_seconds: When to try again.
    """

    def __init__(
        self, code: str, message: str, help: str, *, field: str | None = None, retry_seconds: float | None = None
    ):
        super().__init__(message)
        self.code, self.status = code, STATUSES[code]
        self.message, self.help, self.field, self.retry_seconds = message, help, field, retry_seconds

    def body(self, request_id: str | None = None) -> dict[str, Any]:
        """Returns the JSON body."""
        error = ErrorBody(code=self.code, message=self.message, field=self.field, help=self.help, request_id=request_id)
        return {"error": error.model_dump()}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the reply."""
        found = {} if self.retry_seconds is None else {"Retry-After": str(max(1, math.ceil(self.retry_seconds)))}
        return found | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


def document_refusals(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Documents refusals for OpenAPI, by their status; those that every route has are added."""
    every = (
        *("invalid_json", "missing_key", "body_timeout", "body_too_large", "encoded_body", "invalid_request"),
        *("rate_limited", "internal_error", "draining"),
        *codes,
    )
    by_status: dict[int | str, list[str]] = {}
    for code in every:
        by_status.setdefault(STATUSES[code], []).append(code)
    return {status: {"model": ErrorReply, "description": ", ".join(found)} for status, found in by_status.items()}


def refuse_surrogates(text: str) -> str:
    """Refuses half of a surrogate pair, which JSON may spell and UTF-8 cannot.

    Raises:
        ValueError: The text has one.
    """
    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        raise ValueError("the text has half of a surrogate pair")
    return text


String = Annotated[str, AfterValidator(refuse_surrogates)]
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]  # the pattern refuses surrogates, too
Probability = Annotated[float, Field(ge=0, le=1)]
MAX_PASSAGES, MAX_TURNS, MAX_FIELDS, MAX_MESSAGES = 1000, 1000, 100, 10_000
# A member of a union, which is no part of a field's place.
MEMBER = re.compile(r"~|constrained-str$|function-after\[|list\[|str$")
TAG = "~"  # begins the names of a union's members, which are no part of a field's place
TEXT, PASSAGE, PASSAGES, ONE, MANY, CONVERSATION = (
    TAG + name for name in ("text", "passage", "passages", "one", "many", "conversation")
)


class JsonRequest(BaseModel):
    """A request with strict types: `true` and `"0.5"` are not accepted as numbers."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _count_fields(cls, value: Any) -> Any:
        """Refuses an object of many keys before an error is built for each."""
        if isinstance(value, dict) and len(value) > MAX_FIELDS:
            raise ValueError(f"an object has {len(value)} keys")
        return value


class OwnRequest(JsonRequest):
    """A request, or a part of one, of the service's own routes: a misspelled key is an error, too."""

    model_config = ConfigDict(extra="forbid")


class Passage(OwnRequest):
    """A passage that was retrieved."""

    id: String | None = Field(default=None, description="Returned with the spans that it is closest to.")
    text: Text


class DialogueTurn(OwnRequest):
    """A turn before the response."""

    speaker: String = "user"
    text: String


# Unions choose their member by the value's form, so that errors are those of the member that was meant.
AnyPassage = Annotated[
    Annotated[Text, Tag(TEXT)] | Annotated[Passage, Tag(PASSAGE)],
    Discriminator(lambda value: PASSAGE if isinstance(value, dict | Passage) else TEXT),
]
Passages = Annotated[list[AnyPassage], Field(min_length=1, max_length=MAX_PASSAGES, fail_fast=True)]
Knowledge = Annotated[
    Annotated[Text, Tag(TEXT)] | Annotated[Passages, Tag(PASSAGES)],
    Discriminator(lambda value: PASSAGES if isinstance(value, list) else TEXT),
]


class Row(OwnRequest):
    """A response with its knowledge."""

    response_field: ClassVar[str] = "response"
    knowledge: Knowledge = Field(
        validation_alias=AliasChoices("knowledge", "context"),
        description="The context that the answer must rest on: a text, or passages; also named context.",
    )
    response: Text = Field(
        validation_alias=AliasChoices("response", "answer"), description="The answer to check; also named answer."
    )
    question: String | None = Field(default=None, description="What the response answers.")
    history: Annotated[list[DialogueTurn], Field(max_length=MAX_TURNS, fail_fast=True)] | None = Field(
        default=None, description="The turns before the response, the oldest first; the question comes last."
    )
    threshold: Probability | None = Field(
        default=None, description="P(hallucinated) from which the response is hallucinated; null: the model's."
    )

    def passages(self) -> list[tuple[str, str]]:
        """Returns id and text of each passage; a text is one passage."""
        given = [self.knowledge] if isinstance(self.knowledge, str) else self.knowledge
        pairs = [(None, one) if isinstance(one, str) else (one.id, one.text) for one in given]
        return [(str(place) if id_ is None else id_, text) for place, (id_, text) in enumerate(pairs)]

    def to_example(self, id_: str, join: Callable[[Sequence[str]], str]) -> Example:
        """Makes the record that detectors take, as `faithkit score` does."""
        history = tuple(Turn(speaker=turn.speaker, text=turn.text) for turn in self.history or ())
        if self.question:
            history += (Turn(speaker="user", text=self.question),)
        texts = list(dict.fromkeys(text for _, text in self.passages()))  # as in tables and Python
        return Example(
            id=id_,
            source="service",
            split="all",
            group=id_,
            knowledge=texts[0] if isinstance(self.knowledge, str) else join(texts),
            history=history,
            response=self.response,
        )


class CheckOne(Row):
    """One response to check."""

    model: String | None = Field(default=None, description="A name of /v1/models; null: the first.")
    stream: bool = Field(default=False, description="Server-sent events: a verdict for each sentence, then the whole.")


class TurnRow(Row):
    """A turn of a conversation, with what the assistant had called before it."""

    response_field: ClassVar[str] = "content"
    calls: str
    turn: int
    message: int

    def to_example(self, id_: str, join: Callable[[Sequence[str]], str]) -> Example:
        """Makes the record that detectors take; the rules for actions read its calls."""
        return replace(Row.to_example(self, id_, join), meta={CALLS: self.calls})


class CheckConversation(OwnRequest):
    """A conversation with tools: each turn of the assistant is checked by what came before it."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)] = Field(
        description="Messages of OpenAI, Anthropic, LangChain and others, the oldest first."
    )
    evidence: Annotated[list[Literal["tools", "system", "user"]], Field(min_length=1, max_length=3)] = Field(
        default=["tools"], description="What turns must rest on."
    )
    threshold: Probability | None = Field(default=None, description="As of a row.")
    model: String | None = Field(default=None, description="A name of /v1/models; null: the first.")

    def rows(self, max_rows: int) -> tuple[list[TurnRow], list[str]]:
        """Returns the turns that have evidence, at most one more than `max_rows`, and what is not judged.

        Raises:
            Problem: A message is malformed.
        """
        report = ReadReport("stop", "", evidence=self.evidence)
        try:
            turns = read_conversation(RawRow({"messages": self.messages}, "messages", 0, 1), report, max_rows + 1)
        except BadRow as error:
            help_ = error.hint or "correct the message"
            raise Problem("invalid_request", str(error), help_, field="messages") from error
        rows = [
            TurnRow.model_construct(
                knowledge=[
                    Passage.model_construct(id=source, text=text)
                    for source, text in zip(turn["sources"], turn["context"], strict=True)
                ],
                response=turn["answer"],
                question=turn["question"],
                threshold=self.threshold,
                **{name: turn[name] for name in (CALLS, "turn", "message")},
            )
            for turn in turns
        ]
        hint = "; evidence: [tools, user, system] also takes what user and system say"
        return rows, [f"{n} {what}{hint * (what == NO_EVIDENCE)}" for what, n in report.counts.items()]


class CheckMany(OwnRequest):
    """Several responses to check."""

    rows: Annotated[list[Row], Field(min_length=1, fail_fast=True)]
    model: String | None = Field(default=None, description="A name of /v1/models; null: the first.")


def limit_rows(max_rows: int) -> Any:
    """Makes the type of a request with one response, with at most so many, or with a conversation.

    More responses are refused before they are read.
    """

    def choose(value: Any) -> str:
        if isinstance(value, CheckConversation) or (isinstance(value, dict) and "messages" in value):
            return CONVERSATION
        return MANY if isinstance(value, CheckMany) or (isinstance(value, dict) and "rows" in value) else ONE

    rows: Any = (Annotated[list[Row], Field(min_length=1, max_length=max_rows, fail_fast=True)], ...)
    limited = create_model("CheckMany", __base__=CheckMany, __doc__=CheckMany.__doc__, rows=rows)
    return Annotated[
        Annotated[CheckOne, Tag(ONE)] | Annotated[limited, Tag(MANY)] | Annotated[CheckConversation, Tag(CONVERSATION)],
        Discriminator(choose),
    ]


class SpanEvidence(BaseModel):
    """Why a span is marked, and the sentence of the context that it was compared with."""

    id: str = Field(
        description="The passage's id; its number, from 0, where it has none; in a conversation the name of the tool, "
        "or document, user, system."
    )
    text: str = Field(description="The sentence; empty where none is close.")
    reason: str = Field(description="Such as: the context says 24 months; not in the context.")
    start: int = Field(description="The first character within the passage.")
    end: int


class MarkedSpan(BaseModel):
    """A part of the response that the knowledge does not support. Offsets count Unicode characters."""

    start: int
    end: int
    text: str
    type: str = Field(description="The label that the model gives.")
    relation: Relation | None = Field(description="To the context; null where the model does not say it.")
    element: Element | None = Field(description="What is wrong; null where the model does not say it.")
    probability: float | None
    evidence: SpanEvidence


class CheckResult(BaseModel):
    """The verdict on one response."""

    label: Literal["faithful", "hallucinated", "unparsed"]
    verdict: Literal["faithful", "unsure", "hallucinated", "unparsed"] = Field(
        description="For people: the label, or unsure where a faithful one is not far below the threshold."
    )
    probability: float | None = Field(description="P(hallucinated); null where the model gives none.")
    threshold: float | None = Field(description="From which the label is hallucinated; null where there is none.")
    spans: list[MarkedSpan]
    language: str | None = Field(
        default=None,
        description="Only where the model does not read the text's language: its ISO 639 code, or und- and its script.",
    )

    @model_serializer(mode="wrap")
    def _leave_out(self, write: SerializerFunctionWrapHandler):  # a type here would take the place of the schema
        found = write(self)
        if self.language is None:
            found.pop("language", None)
        return found


class OneReply(CheckResult):
    """The reply for one response."""

    model: str
    request_id: str


class ManyReply(BaseModel):
    """The reply for several responses, in their order."""

    verdicts: list[CheckResult]
    model: str
    request_id: str


class TurnResult(CheckResult):
    """The verdict on a turn of the assistant."""

    turn: int = Field(description="Its number among the assistant's texts, from 1.")
    message: int = Field(description="The number of its message, from 1.")
    response: str = Field(description="Its text, in which the spans count.")


class ConversationReply(BaseModel):
    """The reply for a conversation: a verdict for each turn that has evidence."""

    verdicts: list[TurnResult]
    notes: list[str] = Field(description="What was not judged.")
    model: str
    request_id: str


class ModelCard(BaseModel):
    """A served model, as OpenAI lists it."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["faithkit"] = "faithkit"
    checkpoint: str
    threshold: str | None
    marks_spans: bool


class ModelList(BaseModel):
    """The served models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]
