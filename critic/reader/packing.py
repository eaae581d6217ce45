"""Packs a context with all its answers into one sequence for a causal language model.

    tokens      context | question | answer True or false: | answer True or false: | question | answer ...
    positions   0 .. c    c ..       q ..                    q ..                    c ..       q ..

A question attends to the context, an answer to the context, its question and itself; positions restart. So each answer
is read as if it were alone, and the context is read once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from data_modules.encoding.tokens import make_encodable

FIRST = 0  # the first token of a sequence: <|endoftext|> of smollm2
TAIL = "\nTrue or false:"  # behind an answer; the verdict is read at its last token
MAX_PACKED = 1024  # tokens of questions and answers in one sequence
MAX_ANSWER = 400  # tokens of an answer that are read together; a longer one is read in parts

Offsets = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Piece:
    """An answer, or a part of a long one.

    Args:
        row: The answer's number.
        ids: Its tokens.
        offsets: The characters of each token in the answer.
    """

    row: int
    ids: list[int]
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Pack:
    """One sequence.

    Args:
        ids: [1, tokens]
        positions: [1, tokens]
        mask: Whether a token attends to another [1, 1, tokens, tokens].
        pieces: The answers in it.
        places: The first token of each answer.
        verdicts: The token of each verdict.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    pieces: list[Piece]
    places: list[int]
    verdicts: list[int]


class Packer:
    """Makes sequences out of contexts, questions and answers.

    Args:
        tokenizer: Of the language model; texts that look like its special tokens are read as text.
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self.tail = self._encode(TAIL).ids

    def _encode(self, text: str) -> Any:
        return self.tokenizer.encode(make_encodable([text])[0], add_special_tokens=False)

    def pack(self, context: str, answers: Mapping[str, Sequence[tuple[int, str]]]) -> list[Pack]:
        """Packs the answers to one context.

        Args:
            answers: For each question, which may be empty, the numbers and texts of its answers.
        """
        shared = [FIRST, *self._encode(context).ids]
        packs: list[Pack] = []
        groups: list[tuple[list[int], list[Piece]]] = []
        used = 0
        for question, rows in answers.items():
            asked = self._encode(f"\n\nQuestion: {question}\nAnswer:" if question else "\n\nStatement:").ids
            groups.append((asked, []))
            used += len(asked)
            for piece in (piece for row, text in rows for piece in self._divide(row, text)):
                size = len(piece.ids) + len(self.tail)
                if used + size > MAX_PACKED and any(pieces for _, pieces in groups):
                    packs.append(self._join(shared, groups))
                    groups, used = [(asked, [])], len(asked)
                groups[-1][1].append(piece)
                used += size
        return [*packs, self._join(shared, groups)]

    def _divide(self, row: int, text: str) -> list[Piece]:
        encoded = self._encode(f" {text}")
        offsets = [(max(begin - 1, 0), end - 1) for begin, end in encoded.offsets]
        begins = range(0, max(len(offsets), 1), MAX_ANSWER)
        return [Piece(row, encoded.ids[b : b + MAX_ANSWER], offsets[b : b + MAX_ANSWER]) for b in begins]

    def _join(self, shared: list[int], groups: Sequence[tuple[list[int], list[Piece]]]) -> Pack:
        ids, positions = list(shared), list(range(len(shared)))
        group, answer = [-1] * len(shared), [-1] * len(shared)  # those of each token; -1 outside
        pieces, places, verdicts = list[Piece](), list[int](), list[int]()
        for number, (asked, of_group) in enumerate(groups):
            if not of_group:
                continue
            segments = [(-1, asked, len(shared))]
            first = len(shared) + len(asked)
            segments += [(n, [*piece.ids, *self.tail], first) for n, piece in enumerate(of_group)]
            for which, tokens, begin in segments:
                if which >= 0:
                    pieces.append(of_group[which])
                    places.append(len(ids))
                ids += tokens
                positions += range(begin, begin + len(tokens))
                group += [number] * len(tokens)
                answer += [which] * len(tokens)
                if which >= 0:
                    verdicts.append(len(ids) - 1)
        of_group_, of_answer = torch.tensor(group), torch.tensor(answer)
        is_shared = of_group_ == -1
        is_same = (of_group_[:, None] == of_group_) & ((of_answer == -1) | (of_answer[:, None] == of_answer))
        mask = (is_shared | is_same).tril()
        return Pack(torch.tensor([ids]), torch.tensor([positions]), mask[None, None], pieces, places, verdicts)
