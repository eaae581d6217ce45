"""Defines the detector `thorough`: `default` joined with a language model of 135M that reads context and answer.

    faithkit check --checkpoint thorough --context docs/examples/manual.txt "The warranty lasts 36 months."

    log-odds of a response = a default + b reader + c         (of a word alike)

`default` compares words and values, and finds wrong numbers and units; the reader also finds swapped roles, negations
and additions. It needs half a second to a second for an answer on one thread, and a tenth of that for each further
answer to the same context. `thorough.json` has the weights a, b, c, the thresholds, and the hashes of everything that
they were fitted with.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from critic.runtime import apply_precision, calibration_requests
from critic.support.alignment import Alignment, Floats
from critic.support.detector import FILE as DEFAULT_FILE
from critic.support.detector import SupportDetector, find_seen
from critic.support.word_model import AIMS, read_fitted
from critic.support.word_states import SHORT
from critic.weights import check_weights
from data_modules.encoding.tokens import make_encodable
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import hash_file
from faithkit.provenance.used_model import CHECKPOINT, UsedModel
from faithkit.records import PASSAGE_BREAK
from faithkit.weights.load import import_transformers, load_model
from faithkit.weights.resolve import hash_weights, loading

NAME = "thorough"
FOLDER = Path(__file__).parent
FILE, ADAPTERS = "thorough.json", "thorough.safetensors"
FORMAT = 1
BASE = "smollm2-135m"
SCALE = 2.0  # of the adapters' output: alpha over rank
HEADS = ("verdict.weight", "verdict.bias", "token.weight", "token.bias")
HINT = "install faithkit again, or make the file again with `python -m faithkit_workflows.fit_reader`"
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

    def inputs(self, device: torch.device) -> dict[str, Any]:
        """Returns what the language model takes."""
        return {
            "input_ids": self.ids.to(device),
            "attention_mask": self.mask.to(device),
            "position_ids": self.positions.to(device),
            "use_cache": False,
        }


class Packer:
    """Makes sequences out of contexts, questions and answers: a context and all its answers are one sequence.

        tokens      context | question | answer True or false: | answer True or false: | question | answer ...
        positions   0 .. c    c ..       q ..                    q ..                    c ..       q ..

    A question attends to the context, an answer to the context, its question and itself; positions restart. So each
    answer is read as if it were alone, and the context is read once.

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

    def pack(self, texts: Iterable[tuple[str, str, str]]) -> Iterator[Pack]:
        """Packs contexts, questions, which may be empty, and answers: those to one context share sequences."""
        by_context: dict[str, dict[str, list[tuple[int, str]]]] = {}
        for row, (context, question, answer) in enumerate(texts):
            by_context.setdefault(context, {}).setdefault(question, []).append((row, answer))
        for context, answers in by_context.items():
            shared = [FIRST, *self._encode(context).ids]
            groups: list[tuple[list[int], list[Piece]]] = []  # the tokens of a question, and its answers
            used = 0
            for question, rows in answers.items():
                asked = self._encode(f"\n\nQuestion: {question}\nAnswer:" if question else "\n\nStatement:").ids
                groups.append((asked, []))
                used += len(asked)
                for piece in (piece for row, text in rows for piece in self._divide(row, text)):
                    size = len(piece.ids) + len(self.tail)
                    if used + size > MAX_PACKED and any(pieces for _, pieces in groups):
                        yield self._join(shared, groups)
                        groups, used = [(asked, [])], len(asked)
                    groups[-1][1].append(piece)
                    used += size
            yield self._join(shared, groups)

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


class Reading(NamedTuple):
    """What the model says about an answer.

    Args:
        verdict: Log-odds of hallucinated; of a long answer those of its worst part.
        tokens: Log-odds of each token being wrong.
        offsets: The characters of each token in the answer.
    """

    verdict: float
    tokens: list[float]
    offsets: Offsets


class Reader:
    """Reads answers with their contexts: a base with LoRA adapters, and two linear heads on its last states.

    The verdict's head reads the last token behind an answer, the other each token of the answer: is it in a wrong part?
    The file of adapters has for each adapted layer `NAME.a` [rank, inputs] and `NAME.b` [outputs, rank], and the heads.

    Args:
        model: The language model without its output layer.
        heads: The heads, by the names of HEADS.
    """

    def __init__(self, model: Any, heads: Mapping[str, Tensor], tokenizer: Tokenizer):
        self.model, self.packer = model, Packer(tokenizer)
        self.heads = torch.cat([heads["verdict.weight"], heads["token.weight"]]).float()
        self.biases = torch.cat([heads["verdict.bias"], heads["token.bias"]]).float()

    @classmethod
    def load(cls, adapters: Path, *, base: str, base_sha256: str, device: str) -> "Reader":
        """Loads the base, and adds the adapters to its weights.

        Raises:
            UserError: The base has other weights, or the adapters do not fit it.
        """
        model, tokenizer = load_base(base, base_sha256)
        try:
            tensors = load_file(adapters)
        except Exception as error:  # safetensors' errors have no common class
            raise UserError(f"broken adapters: {type(error).__name__}", place=str(adapters), hint=HINT) from error
        if missing := [name for name in HEADS if name not in tensors]:
            raise UserError(f"the adapters lack {missing[0]}", place=str(adapters), hint=HINT)
        heads = {name: tensors.pop(name) for name in HEADS}
        add_adapters(model, tensors, str(adapters))
        return cls(model.eval().requires_grad_(False).to(device), heads, tokenizer)

    @torch.inference_mode()
    def read(self, texts: Sequence[tuple[str, str, str]]) -> list[Reading]:
        """Reads contexts, questions and answers; a context that several answers share is read once."""
        verdicts = [float("-inf")] * len(texts)
        tokens, offsets = [list[float]() for _ in texts], [Offsets() for _ in texts]
        for pack in self.packer.pack(texts):
            output = self.model(**pack.inputs(self.model.device))
            odds = (output.last_hidden_state[0].float().cpu() @ self.heads.T + self.biases).tolist()
            for piece, place, verdict in zip(pack.pieces, pack.places, pack.verdicts, strict=True):
                verdicts[piece.row] = max(verdicts[piece.row], odds[verdict][0])
                tokens[piece.row] += [odds[place + n][1] for n in range(len(piece.ids))]
                offsets[piece.row] += piece.offsets
        return [Reading(*one) for one in zip(verdicts, tokens, offsets, strict=True)]


def load_base(name: str, sha256: str | None = None) -> tuple[Any, Tokenizer]:
    """Loads a language model without its output layer, and its tokenizer.

    Raises:
        UserError: It has other weights than those with this hash.
    """
    import_transformers()
    from transformers import AutoModelForCausalLM

    with loading(name) as source:
        if sha256 is not None:
            check_weights(name, source, sha256, hash_weights(source) or "no weights")
        model = load_model(AutoModelForCausalLM, source).model
        return model, Tokenizer.from_file(str(Path(source) / "tokenizer.json"))


def add_adapters(model: nn.Module, tensors: Mapping[str, Tensor], place: str) -> None:
    """Adds adapters to the weights of a model.

    Raises:
        UserError: They are of another model.
    """
    layers = dict(model.named_modules())
    for name in sorted({name.rpartition(".")[0] for name in tensors}):
        layer, a, b = layers.get(name), tensors.get(f"{name}.a"), tensors.get(f"{name}.b")
        if not isinstance(layer, nn.Linear) or a is None or b is None or a.ndim != 2 or b.ndim != 2:
            raise UserError(f"the base has no layer {shorten(name)} for these adapters", place=place, hint=HINT)
        if (len(b), a.shape[1]) != layer.weight.shape or len(a) != b.shape[1]:
            raise UserError(f"the adapters of {name} have another shape", place=place, hint=HINT)
        with torch.no_grad():
            layer.weight += SCALE * (b.float() @ a.float())


def find_folder(path: str) -> Path:
    """Returns the folder of a fit."""
    return Path(path).expanduser() if path else FOLDER


@dataclass(frozen=True, kw_only=True)
class Join:
    """The fitted numbers of `thorough.json`.

    Args:
        base: The name of the language model.
        base_sha256: The hash of its weights.
        adapters_sha256: The hash of its adapters.
        default_sha256: The hash of the file of `default`.
        response: a, b and c of a response.
        word: a, b and c of a word.
        model: The thresholds, figures and description, by their names in `WordModel`.
    """

    base: str
    base_sha256: str
    adapters_sha256: str
    default_sha256: str
    response: tuple[float, float, float]
    word: tuple[float, float, float]
    model: dict[str, Any]

    @classmethod
    def read(cls, folder: str) -> "Join":
        """Reads the file in a folder, and verifies its hash and that of the adapters.

        Args:
            folder: That of `python -m faithkit_workflows.fit_reader join`; empty for the one that comes with faithkit.

        Raises:
            UserError: A file was changed.
        """
        path = find_folder(folder) / FILE
        stored = read_fitted(path, FORMAT, HINT)
        try:
            join = cls(**{**stored, "response": tuple(stored["response"]), "word": tuple(stored["word"])})
            is_valid = len(join.response) == len(join.word) == 3 and join.model["aims"].keys() == set(AIMS)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"broken detector file: {shorten(error)}", place=str(path), hint=HINT) from error
        if not is_valid:
            raise UserError("broken detector file: wrong weights or thresholds", place=str(path), hint=HINT)
        if hash_file(path.with_name(ADAPTERS)) != join.adapters_sha256:
            problem = "the adapters were changed: their hash is not that of the fit"
            raise UserError(problem, place=str(path.with_name(ADAPTERS)), hint=HINT)
        return join


class ThoroughDetector(SupportDetector):
    """Joins `default` with a language model.

    Args:
        default: The detector `default`, of which the encoder and the fitted weights are used.
        reader: The language model.
        join: The fitted numbers.
    """

    def __init__(self, default: SupportDetector, reader: Reader, join: Join):
        super().__init__(default.encoder, replace(default.model, **join.model), name=NAME)
        self.reader, self.join = reader, join

    @classmethod
    def load(
        cls,
        path: str = "",
        *,
        device: str | None = None,
        precision: str = "32-true",
        batch_tokens: int | None = None,
    ) -> "ThoroughDetector":
        """Loads the detector.

        Args:
            path: The folder of another fit; empty for the one that comes with faithkit.
            device: `cuda`, `cpu`, ...; None takes a GPU if there is one.
            precision: 32-true, bf16, int8 (CPU), or auto.

        Raises:
            UserError: A file or a model is not the original one.
        """
        join, folder = Join.read(path), find_folder(path)
        default = SupportDetector.load(device=device, precision=precision, batch_tokens=batch_tokens)
        if hash_file(DEFAULT_FILE) != join.default_sha256:
            problem = "default.json is not the file that this detector was fitted with"
            raise UserError(problem, place=str(DEFAULT_FILE), hint=HINT)
        base = {"base": join.base, "base_sha256": join.base_sha256}
        reader = Reader.load(folder / ADAPTERS, **base, device=str(default.device))
        texts = [(one.knowledge, one.question, one.response) for one in calibration_requests()]
        reader.model = apply_precision(reader.model, precision, str(default.device), lambda: reader.read(texts))
        return cls(default, reader, join)

    @classmethod
    def describe(cls, path: str, role: str = CHECKPOINT) -> UsedModel:
        """Describes the detector for the record of where predictions come from."""
        join = Join.read(path)
        description = join.model["description"]
        return UsedModel(
            role=role,
            path=f"{NAME}:{path}" if path else NAME,
            kind=NAME,
            weights=join.adapters_sha256[:32],
            threshold=f"{join.model['threshold']:.4g}, {description.get('threshold', 'as fitted')}",
            find_seen=lambda: find_seen([str(part["name"]) for part in description["fitted_on"]]),
        )

    def __repr__(self) -> str:
        return (
            f"ThoroughDetector({self.join.base!r}, threshold={self.model.threshold:.4g}, device={str(self.device)!r})"
        )

    def _weigh(self, texts: Sequence[tuple[str, str, str]], aligned: Sequence[Alignment]) -> list[tuple[float, Floats]]:
        # Of a long context the reader has the parts that `default` has.
        contexts = [
            PASSAGE_BREAK.join(alignment.parts) if len(context) > SHORT else context
            for (context, _, _), alignment in zip(texts, aligned, strict=True)
        ]
        read = self.reader.read([(context, *text[1:]) for context, text in zip(contexts, texts, strict=True)])
        (a, b, c), (d, e, f) = self.join.response, self.join.word
        joined = []
        for alignment, reading, (odds, logits) in zip(aligned, read, super()._weigh(texts, aligned), strict=True):
            of_words = word_odds(alignment, reading.tokens, reading.offsets)
            joined.append((a * odds + b * reading.verdict + c, d * logits + e * of_words + f))
        return joined


def word_odds(alignment: Alignment, tokens: Sequence[float], offsets: Offsets) -> Floats:
    """Returns the reader's log-odds of each compared word: those of its worst token [words]."""
    starts, ends = np.array([begin for begin, _ in offsets]), np.array([end for _, end in offsets])
    odds = np.array(tokens)
    words = [alignment.words[place] for place in alignment.places]
    found = [odds[(starts < word.end) & (word.start < ends)] for word in words]
    return np.array([inside.max() if len(inside) else odds.min() for inside in found])
