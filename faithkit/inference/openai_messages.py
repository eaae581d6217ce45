"""Translates between `faithkit.inference.text` and the chat completions of OpenAI-compatible servers."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faithkit.errors import UserError
from faithkit.inference.decoding import NUCLEUS, Decoding, seed_of
from faithkit.inference.text import Form, Reply, Request

CUT = "length"  # the reason of an ending that the model did not choose
WITHHELD = "content_filter"


class Unusable(Exception):
    """An answer without a text in it.

    Args:
        final: Asking again would give the same.
    """

    def __init__(self, problem: str, *, final: bool = False):
        super().__init__(problem)
        self.final = final


class _Part(BaseModel):
    """A part of an answer; what else a server adds is not looked at."""

    model_config = ConfigDict(defer_build=True)


class _Candidate(_Part):
    token: str
    logprob: Annotated[float, Field(le=1e-3)]  # refuses NaN, too; a rounded 0 may be a little above it


class _Position(_Part):
    top_logprobs: list[_Candidate] = []


class _Logprobs(_Part):
    content: list[_Position] | None = None


class _Written(_Part):
    content: str | None = None
    refusal: str | None = None


class _Choice(_Part):
    message: _Written
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Tokens(_Part):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Answer(_Part):
    """A server's answer to a chat completion, as far as it is read here."""

    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: _Tokens | None = None

    @property
    def tokens(self) -> _Tokens:
        return self.usage or _Tokens()


class _Model(_Part):
    id: str
    owned_by: str | None = None


class Models(_Part):
    """The models that a server has."""

    data: list[_Model] = []

    @property
    def are_vllm(self) -> bool:
        """Tells a vLLM server, which takes settings that others do not know."""
        return any(model.owned_by == "vllm" for model in self.data)


def read_answer(content: bytes) -> Answer:
    """Reads the body of an answer.

    Raises:
        Unusable: It is not JSON, is cut off, or lacks what every answer has.
    """
    try:
        return Answer.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        what = "is not JSON" if first["type"] == "json_invalid" else f"has no valid {where}"
        raise Unusable(f"the server's answer {what}") from error


def read_models(content: bytes) -> Models:
    """Reads a list of models; one that is not as OpenAI's is as good as none."""
    try:
        return Models.model_validate_json(content)
    except ValidationError:
        return Models()


def read_texts(answer: Answer) -> list[tuple[str, bool]]:
    """Gives the texts of an answer, and whether the model ended each. A text may be empty where another is not.

    Raises:
        Unusable: All are empty.
    """
    texts = [(choice.message.content or "", choice.finish_reason != CUT) for choice in answer.choices]
    if any(text.strip() for text, _ in texts):
        return texts
    first = answer.choices[0]
    if first.message.refusal:
        raise Unusable("the model refuses to answer", final=True)
    if first.finish_reason == WITHHELD:
        raise Unusable("the server's content filter withholds the answer", final=True)
    if first.finish_reason == CUT:  # as models do that think before they answer
        raise Unusable("the answer is empty: max_new_tokens were spent before it began", final=True)
    raise Unusable("the answer is empty")


def add_samples(reply: Reply, answer: Answer, texts: Sequence[tuple[str, bool]]) -> Reply:
    """Adds the samples of one more answer to a reply, and the tokens that it took."""
    return replace(
        reply,
        texts=(*reply.texts, *(text for text, _ in texts)),
        finished=(*reply.finished, *(finished for _, finished in texts)),
        prompt_tokens=reply.prompt_tokens + answer.tokens.prompt_tokens,
        new_tokens=reply.new_tokens + answer.tokens.completion_tokens,
    )


def generation_settings(
    decoding: Decoding, form: Form | None, request: Request, *, first: int, on_vllm: bool
) -> dict[str, Any]:
    """Translates the settings of decoding.

    Args:
        first: Number of the first sample that is asked for; the samples before it have been written.
        on_vllm: The server takes vLLM's own settings.

    Raises:
        UserError: The server takes no such settings.
    """
    if not on_vllm and (decoding.min_new_tokens or decoding.repetition_penalty != 1.0):
        hint = "decoding.min_new_tokens=0 decoding.repetition_penalty=1"
        raise UserError("this server is not vLLM, and takes neither of these settings", hint=hint)
    settings: dict[str, Any] = {"temperature": 0.0}
    if decoding.strategy == NUCLEUS:
        seed = seed_of(decoding.seed, request.id, first, size=4) >> 1  # some servers take 31 bits
        settings = {"temperature": decoding.temperature, "top_p": decoding.top_p, "seed": seed}
    if decoding.num_samples - first > 1:
        settings["n"] = decoding.num_samples - first
    own: dict[str, Any] = {}
    if on_vllm:  # what is not sent it takes from the model's generation_config.json
        own = {"min_tokens": decoding.min_new_tokens, "repetition_penalty": decoding.repetition_penalty}
        own |= {"top_k": -1, "min_p": 0.0}  # off
    if form is not None and form.choices and on_vllm:
        own["structured_outputs"] = {"choice": list(form.choices)}
    if form is not None and form.schema is not None:
        schema = {"name": "reply", "schema": dict(form.schema), "strict": True}
        settings["response_format"] = {"type": "json_schema", "json_schema": schema}
    return settings | ({"extra_body": own} if own else {})


def weigh_choices(answer: Answer, choices: Sequence[str]) -> dict[str, float]:
    """Reads the choices' relative probabilities from the likeliest first tokens.

    A token, stripped of white space, counts for the choice that it equals, or that it alone begins ("hall" for
    "hallucinated"), or that it goes beyond by a sign ("Yes." for "Yes", but not "Yesterday"). Capitals matter. A choice
    that no token counts for has 0.

    Returns:
        Empty where the server tells no probabilities, or those of other tokens alone.
    """
    logprobs = answer.choices[0].logprobs
    positions = (logprobs.content if logprobs else None) or []
    weights = dict.fromkeys(choices, 0.0)
    for candidate in positions[0].top_logprobs if positions else ():
        choice = _choice_of(candidate.token.strip(), choices)
        if choice is not None:
            weights[choice] += math.exp(candidate.logprob)
    total = sum(weights.values())
    return {choice: weight / total for choice, weight in weights.items()} if total > 0 else {}


def _choice_of(token: str, choices: Sequence[str]) -> str | None:
    if not token or token in choices:
        return token or None
    begun = [choice for choice in choices if choice.startswith(token)]
    if begun:
        return begun[0] if len(begun) == 1 else None
    beyond = [c for c in choices if token.startswith(c) and not token[len(c)].isalnum()]
    return max(beyond, key=len, default=None)
