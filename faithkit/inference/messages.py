"""Turns messages into tokens as a model's chat template lays them out.

What a message says is encoded as text alone: the spelling of a special token in it stays text, so no response can end
its own turn or speak for another. A model without a chat template reads the messages one below the other.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError, shorten
from faithkit.inference.text import SYSTEM, Message
from faithkit.literal_text import literal_text, without_special

# Around the number of a message, which stands in the place of its content while the template is rendered.
_OPEN, _CLOSE = "\ue000", "\ue001"
BREAK = "\n\n"  # between messages, where there is no template


class _Piece(NamedTuple):
    """A part of a prompt: of the template, or what a message says."""

    text: str
    is_content: bool


class MessageTokens:
    """Encodes messages for one model, and what it is to answer.

    Args:
        tokenizer: A fast one, of transformers.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.has_template = bool(tokenizer.chat_template)
        # Words carry the space before them: an answer behind plain text begins with one, behind a template it does not.
        self._lead = "" if self.has_template else " "

    def prompts(self, conversations: Sequence[Sequence[Message]]) -> list[NDArray[np.int32]]:
        """Encodes each conversation up to where the model answers."""
        pieces = [self._pieces(messages) for messages in conversations]
        ids = self._encode({piece for own in pieces for piece in own})
        before = [] if self.has_template else _tokens_before(self.tokenizer)
        return [np.concatenate([np.array(before, np.int32), *(ids[piece] for piece in own)]) for own in pieces]

    def choices(self, choices: Sequence[str]) -> tuple[list[int], list[int]]:
        """Gives the tokens that all choices begin with, often none, and for each the one that tells it from the others.

        Raises:
            UserError: No single token tells them apart.
        """
        pieces = [_Piece(f"{self._lead}{choice}", True) for choice in choices]
        ids = self._encode(set(pieces))
        rows = [ids[piece].tolist() for piece in pieces]
        shared = 0
        while all(len(row) > shared for row in rows) and len({row[shared] for row in rows}) == 1:
            shared += 1
        telling = [row[shared] for row in rows if len(row) > shared]
        if len(set(telling)) < len(choices):
            problem = f"no token of this model tells {' and '.join(map(shorten, choices))} apart"
            raise UserError(problem, hint="use another model")
        return rows[0][:shared], telling

    def answers(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Encodes answers as a model learns to write them, with the token that ends them."""
        pieces = [_Piece(f"{self._lead}{text}", True) for text in texts]
        ids, end = self._encode(set(pieces)), np.array([self.tokenizer.eos_token_id], np.int32)
        return [np.concatenate([ids[piece], end]) for piece in pieces]

    def decode(self, ids: Sequence[int]) -> str:
        """Gives the text of an answer."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True)).strip()

    def _pieces(self, messages: Sequence[Message]) -> list[_Piece]:
        if not self.has_template:
            return [_Piece(BREAK.join(message.content for message in messages), True)]
        pieces = []
        for part in self._rendered(messages).split(_OPEN):
            number, closed, rest = part.partition(_CLOSE)
            if closed:
                pieces.append(_Piece(messages[int(number)].content, True))
            pieces.append(_Piece(rest if closed else part, False))
        return [piece for piece in pieces if piece.text]

    def _rendered(self, messages: Sequence[Message]) -> str:
        from jinja2.exceptions import TemplateError

        turns = [{"role": m.role, "content": f"{_OPEN}{number}{_CLOSE}"} for number, m in enumerate(messages)]
        render = {"tokenize": False, "add_generation_prompt": True}
        try:
            return str(self.tokenizer.apply_chat_template(turns, **render))
        except TemplateError as error:
            if messages[0].role != SYSTEM or len(messages) < 2:
                problem = f"its chat template refuses these messages: {shorten(str(error))}"
                raise UserError(problem, hint="use another model") from error
        # Some templates have no system role: the next message then begins with what it says.
        first = {**turns[1], "content": f"{turns[0]['content']}{BREAK}{turns[1]['content']}"}
        return str(self.tokenizer.apply_chat_template([first, *turns[2:]], **render))

    def _encode(self, pieces: set[_Piece]) -> dict[_Piece, NDArray[np.int32]]:
        """Encodes each piece by itself, without special tokens but those that a template spells."""
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        parts = [piece for piece in pieces if not piece.is_content]
        said = [piece for piece in pieces if piece.is_content]
        found = dict(zip(parts, _encode_batch(backend, parts), strict=True))
        with literal_text(self.tokenizer):
            for piece, ids in zip(said, _encode_batch(backend, said), strict=True):
                found[piece] = without_special(self.tokenizer, ids)
        return found


def _encode_batch(backend: Any, pieces: Sequence[_Piece]) -> list[NDArray[np.int32]]:
    # The Rust side takes no lone surrogate: the model sees a question mark in its place.
    texts = [piece.text.encode(errors="replace").decode() for piece in pieces]
    return [np.array(one.ids, np.int32) for one in backend.encode_batch_fast(texts, add_special_tokens=False)]


def _tokens_before(tokenizer: Any) -> list[int]:
    """Finds the tokens that the tokenizer puts in front of a text, such as that of its beginning."""
    whole, own = (tokenizer("a", add_special_tokens=added)["input_ids"] for added in (True, False))
    return list(whole[: whole.index(own[0])])
