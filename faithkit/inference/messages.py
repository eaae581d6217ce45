"""Encodes messages with a model's chat template.

The content of a message is encoded as text only: the spelling of a special token in it stays text, so no response can
end its turn or begin another one. For a model without a chat template, the messages are joined by blank lines.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError, shorten
from faithkit.inference.text import SYSTEM, Message


@contextmanager
def literal_text(tokenizer: Any) -> Iterator[Any]:
    """Lets a fast tokenizer encode the spelling of special tokens as text within the context; gives its Rust part."""
    backend = tokenizer.backend_tokenizer
    before = backend.encode_special_tokens
    backend.encode_special_tokens = True
    try:
        yield backend
    finally:
        backend.encode_special_tokens = before


def without_special(tokenizer: Any, ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """Makes special tokens unknown ones: a Unigram model maps their spelling to them all the same."""
    unknown, special = tokenizer.unk_token_id, tokenizer.all_special_ids
    if unknown is None or unknown == tokenizer.eos_token_id:
        return ids
    return np.where(np.isin(ids, special), np.int32(unknown), ids)


# Delimiters of a message's number, which replaces its content while the template is rendered.
_OPEN, _CLOSE = "\ue000", "\ue001"
BREAK = "\n\n"  # between messages without a template


class _Piece(NamedTuple):
    """A part of a prompt: template text, or the content of a message."""

    text: str
    is_content: bool


class MessageTokens:
    """Encodes messages and answers for one model.

    Args:
        tokenizer: A fast tokenizer of transformers.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.has_template = bool(tokenizer.chat_template)
        # Tokens of words include the space before them: an answer begins with a space after plain text only.
        self._lead = "" if self.has_template else " "

    def prompts(
        self, conversations: Sequence[Sequence[Message]], templates: Sequence[Mapping[str, Any]] | None = None
    ) -> list[NDArray[np.int32]]:
        """Encodes each conversation up to the model's answer.

        Args:
            templates: Variables of the chat template for each; None for none.
        """
        templates = templates or [{}] * len(conversations)
        pieces = [self._pieces(*each) for each in zip(conversations, templates, strict=True)]
        ids = self._encode({piece for parts in pieces for piece in parts})
        before: list[int] = []  # the tokens that the tokenizer adds before a text
        if not self.has_template:
            whole, plain = (self.tokenizer("a", add_special_tokens=added)["input_ids"] for added in (True, False))
            before = list(whole[: whole.index(plain[0])])
        return [np.concatenate([np.array(before, np.int32), *(ids[piece] for piece in parts)]) for parts in pieces]

    def choices(self, choices: Sequence[str]) -> tuple[list[int], list[int]]:
        """Returns the common first tokens of all choices, often none, and each choice's first distinctive token.

        Raises:
            UserError: No single token distinguishes them.
        """
        pieces = [_Piece(f"{self._lead}{choice}", True) for choice in choices]
        ids = self._encode(set(pieces))
        rows = [ids[piece].tolist() for piece in pieces]
        shared = 0
        while all(len(row) > shared for row in rows) and len({row[shared] for row in rows}) == 1:
            shared += 1
        distinctive = [row[shared] for row in rows if len(row) > shared]
        if len(set(distinctive)) < len(choices):
            problem = f"no token of this model distinguishes {' and '.join(map(shorten, choices))}"
            raise UserError(problem, hint="use another model")
        return rows[0][:shared], distinctive

    def answers(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Encodes answers with their end token, as a model learns to write them."""
        pieces = [_Piece(f"{self._lead}{text}", True) for text in texts]
        ids, end = self._encode(set(pieces)), np.array([self.tokenizer.eos_token_id], np.int32)
        return [np.concatenate([ids[piece], end]) for piece in pieces]

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes an answer."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True)).strip()

    def _pieces(self, messages: Sequence[Message], template: Mapping[str, Any]) -> list[_Piece]:
        if template and not self.has_template:
            problem = f"this model needs a chat template that reads {', '.join(template)}, and has none"
            raise UserError(problem, hint="copy chat_template.jinja or tokenizer_config.json from its repository")
        if not self.has_template:
            return [_Piece(BREAK.join(message.content for message in messages), True)]
        from jinja2.exceptions import TemplateError

        turns = [{"role": m.role, "content": f"{_OPEN}{number}{_CLOSE}"} for number, m in enumerate(messages)]
        render = {"tokenize": False, "add_generation_prompt": True, **self._defused(template)}
        try:
            rendered = str(self.tokenizer.apply_chat_template(turns, **render))
        except TemplateError as error:
            if messages[0].role != SYSTEM or len(messages) < 2:
                problem = f"its chat template refuses these messages: {shorten(str(error))}"
                raise UserError(problem, hint="use another model") from error
            # Some templates have no system role: its content is then put before that of the next message.
            first = {**turns[1], "content": f"{turns[0]['content']}{BREAK}{turns[1]['content']}"}
            rendered = str(self.tokenizer.apply_chat_template([first, *turns[2:]], **render))
        pieces = []
        for part in rendered.split(_OPEN):
            number, closed, rest = part.partition(_CLOSE)
            if closed:
                pieces.append(_Piece(messages[int(number)].content, True))
            pieces.append(_Piece(rest if closed else part, False))
        return [piece for piece in pieces if piece.text]

    def _defused(self, value: Any) -> Any:
        """Parts the spelling of special tokens in the variables of a template, which are encoded with it."""
        if isinstance(value, Mapping):
            return {key: self._defused(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._defused(one) for one in value]
        if isinstance(value, str):
            for token in (*self.tokenizer.get_added_vocab(), _OPEN, _CLOSE):
                value = value.replace(token, f"{token[:1]} {token[1:]}" if len(token) > 1 else " ")
        return value

    def _encode(self, pieces: set[_Piece]) -> dict[_Piece, NDArray[np.int32]]:
        """Encodes each piece separately; special tokens come only from the template."""
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        found = {}
        for is_content in (False, True):
            group = [piece for piece in pieces if piece.is_content == is_content]
            # The Rust code accepts no lone surrogates: they become question marks.
            texts = [piece.text.encode(errors="replace").decode() for piece in group]
            with literal_text(self.tokenizer) if is_content else nullcontext():
                encoded = backend.encode_batch_fast(texts, add_special_tokens=False)
            for piece, one in zip(group, encoded, strict=True):
                ids = np.array(one.ids, np.int32)
                found[piece] = without_special(self.tokenizer, ids) if is_content else ids
        return found
