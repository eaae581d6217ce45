"""Computes the states of words with an encoder that is not fine-tuned.

Of a long context only the parts that share most with a response are encoded. Each part is encoded alone, so that a part
which serves several responses is encoded once (`ContextCache`).

The encoder is always minilm, so one architecture is enough: a BERT encoder without transformers, which takes two
seconds to import. Sequences are not padded: they stand one behind the other, and only attention goes through them one
by one.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from critic.support.alignment import Alignment, Encoded, States
from critic.support.normal_forms import STOP, Word, read_words
from critic.support.values import compare_values
from data_modules.encoding.tokens import make_encodable, text_blocks
from data_modules.encoding.window_choice import PART, divide, rank_parts
from faithkit.errors import UserError
from faithkit.fast import missing_rows
from faithkit.files.jsonl import read_strict_json
from faithkit.records import PASSAGE_BREAK

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
FIRST, LAST = "[CLS]", "[SEP]"  # tokens around a text
EXPECTED = {"model_type": "bert", "hidden_act": "gelu"}
HINT = "copy or download the folder again"
# Names in the files of BertModel
EMBEDDINGS = {"words": "word_embeddings", "positions": "position_embeddings", "types": "token_type_embeddings"}
LAYER = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attended": "attention.output.dense",
    "attended_norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "outer_norm": "output.LayerNorm",
}
MAX_TOKENS = 768  # of a context that is encoded whole, and of the parts of a longer one
SHORT = 3 * MAX_TOKENS  # characters up to which a context has no more tokens in any language that is written in words
SENTENCE_END = re.compile(r"(?<=[.!?;])[\"')\]]*\s+|\n+|(?<=[。！？])")
Ints = NDArray[np.int64]


class BertEncoder(nn.Module):
    """The layers of BERT up to the second-to-last; their states are compared.

    Args:
        config: The values of config.json.
    """

    def __init__(self, config: Mapping[str, Any]):
        super().__init__()
        hidden, epsilon = config["hidden_size"], config["layer_norm_eps"]
        self.max_length = int(config["max_position_embeddings"])
        # nn.Embedding on the meta device would import torch's compiler.
        sizes = {"words": config["vocab_size"], "positions": self.max_length, "types": config["type_vocab_size"]}
        self.embeddings = nn.ParameterDict({name: torch.empty(size, hidden) for name, size in sizes.items()})
        self.norm = nn.LayerNorm(hidden, eps=epsilon)
        layer = hidden, config["intermediate_size"], config["num_attention_heads"], epsilon
        self.layers = nn.ModuleList(_Layer(*layer) for _ in range(config["num_hidden_layers"] - 1))
        self.hidden_size = int(hidden)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.norm.weight.device

    @torch.inference_mode()
    def encode(self, sequences: Sequence[Sequence[int]]) -> list[Tensor]:
        """Encodes sequences of token ids, each of at least one: states [tokens, hidden] of each sequence."""
        filling = missing_rows(self, sum(map(len, sequences)))  # a sequence without meaning
        sequences = [*sequences, [0] * filling] if filling else sequences
        lengths = [len(ids) for ids in sequences]
        ids = torch.tensor([number for ids in sequences for number in ids], device=self.device)
        places = torch.cat([torch.arange(length) for length in lengths]).to(self.device)
        words, positions, types = (self.embeddings[name] for name in EMBEDDINGS)
        states = self.norm(words[ids] + types[0] + positions[places])[None]  # [1, tokens of all sequences, hidden]
        for layer in self.layers:
            states = layer(states, lengths)
        return list(states[0].float().split(lengths))[: len(lengths) - bool(filling)]


class _Layer(nn.Module):
    def __init__(self, hidden: int, inner: int, heads: int, epsilon: float):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.attended, self.attended_norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden, eps=epsilon)
        self.inner, self.outer = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.outer_norm = nn.LayerNorm(hidden, eps=epsilon)

    def forward(self, states: Tensor, lengths: Sequence[int]) -> Tensor:
        projected = [layer(states).unflatten(-1, (self.heads, -1)) for layer in (self.query, self.key, self.value)]
        parts = zip(*(values.transpose(1, 2).split(lengths, dim=2) for values in projected), strict=True)
        mixed = torch.cat([functional.scaled_dot_product_attention(*part) for part in parts], dim=2)
        states = self.attended_norm(self.attended(mixed.transpose(1, 2).flatten(2)) + states)
        return self.outer_norm(self.outer(functional.gelu(self.inner(states))) + states)


def load_bert(folder: Path) -> tuple[BertEncoder, Tokenizer]:
    """Loads the encoder and its tokenizer from a folder as `BertModel.save_pretrained` writes it.

    Raises:
        UserError: It is another model, or a tensor is missing or has another shape.
    """
    config = read_strict_json(folder / CONFIG, hint=HINT)
    if wrong := [name for name, value in EXPECTED.items() if config.get(name) != value]:
        problem = f"the detector needs a BERT encoder, and {wrong[0]} is {config.get(wrong[0])!r}"
        raise UserError(problem, place=str(folder), hint="use minilm")
    with torch.device("meta"):
        model = BertEncoder(config)
    tensors = {name.removeprefix("bert."): tensor for name, tensor in load_file(folder / WEIGHTS).items()}
    state = {name: tensors.get(_stored_name(name)) for name in model.state_dict()}
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if wrong := [name for name, tensor in state.items() if tensor is None or tensor.shape != expected[name]]:
        problem = f"the weights have no {_stored_name(wrong[0])} of shape {tuple(expected[wrong[0]])}"
        raise UserError(problem, place=str(folder), hint=HINT)
    model.load_state_dict(state, assign=True)
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    if not {FIRST, LAST} <= tokenizer.get_vocab().keys():
        raise UserError(f"the tokenizer has no {FIRST} or no {LAST}", place=str(folder), hint=HINT)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return model.float().eval().requires_grad_(False), tokenizer


def _stored_name(name: str) -> str:
    first, part, *rest = name.split(".")
    if first == "layers":
        return f"encoder.layer.{part}.{LAYER[rest[0]]}.{rest[1]}"
    return f"embeddings.LayerNorm.{part}" if first == "norm" else f"embeddings.{EMBEDDINGS[part]}.weight"


def _tokenize(tokenizer: Tokenizer, text: str) -> tuple[NDArray[np.int32], Ints]:
    """Returns the tokens of a text, and the first character of each."""
    ids, places = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for begin, end in text_blocks(text):
        (encoded,) = tokenizer.encode_batch([text[begin:end]], add_special_tokens=False)  # other threads go on
        ids.append(np.array(encoded.ids, np.int32))
        places.append(begin + np.fromiter((first for first, _ in encoded.offsets), np.int64, len(ids[-1])))
    return np.concatenate(ids), np.concatenate(places)


MIN_NORM = 1e-6
CACHE_BYTES = 2**26  # of contexts that are kept between calls
MAX_CACHED_CHARACTERS = 4096  # the content words of longer texts are not cached
EMPTY_LINES = re.compile(r"\n\s*\n")
SHARE_MARGIN = 0.3  # of content words, below the passage that has most of them
WORD_BYTES = 1000  # of a word, its 4-grams and its weights, besides its state


class ContextCache:
    """Keeps the contexts that were encoded last; several threads may use it.

    Args:
        max_bytes: A limit of its size; a larger context is not kept.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES):
        self.max_bytes, self.num_bytes = max_bytes, 0
        self._contexts: OrderedDict[str, Encoded] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str) -> Encoded | None:
        """Returns an encoded text, None if it is not kept."""
        with self._lock:
            if text in self._contexts:
                self._contexts.move_to_end(text)
            return self._contexts.get(text)

    def add(self, text: str, encoded: Encoded) -> None:
        """Keeps a text, and drops those that were used longest ago."""
        size = _count_bytes(text, encoded)
        with self._lock:
            if text in self._contexts or size > self.max_bytes:
                return
            self._contexts[text] = encoded
            self.num_bytes += size
            while self.num_bytes > self.max_bytes:
                self.num_bytes -= _count_bytes(*self._contexts.popitem(last=False))


def _count_bytes(text: str, encoded: Encoded) -> int:
    return encoded.states.nbytes + WORD_BYTES * len(encoded.words) + 4 * len(text)


class WordEncoder:
    """Encodes texts: words, and for each the mean state of its tokens in the second-to-last layer, of unit length.

    Args:
        batch_tokens: Tokens that are encoded together; changes the speed, not the results.
    """

    def __init__(self, model: BertEncoder, tokenizer: Tokenizer, *, batch_tokens: int):
        self.model, self.tokenizer, self.batch_tokens = model, tokenizer, batch_tokens
        vocabulary = tokenizer.get_vocab()
        self.first, self.last = vocabulary[FIRST], vocabulary[LAST]
        self.cache: ContextCache | None = None

    def encode(self, texts: Sequence[str], *, contexts: Collection[str] = ()) -> list[Encoded]:
        """Encodes each text; equal texts are encoded once.

        Args:
            contexts: The texts that `cache` keeps for later calls.
        """
        cache, kept = self.cache, dict[str, Encoded]()
        if cache is not None:
            kept = {text: found for text in dict.fromkeys(contexts) if (found := cache.get(text)) is not None}
        unique = [text for text in dict.fromkeys(texts) if text not in kept]
        encodings = self.tokenizer.encode_batch(make_encodable(unique), add_special_tokens=False)
        states = self._encode_tokens([encoding.ids for encoding in encodings])
        encoded = kept | {
            text: _average_words(read_words(text), encoding.offsets, of_tokens)
            for text, encoding, of_tokens in zip(unique, encodings, states, strict=True)
        }
        if cache is not None:
            for text in contexts:
                cache.add(text, encoded[text])
        return [encoded[text] for text in texts]

    def _encode_tokens(self, texts: Sequence[Sequence[int]]) -> list[States]:
        """Computes the states of each text's tokens; long texts are read in windows."""
        size = self.model.max_length - 2
        windows = [(text, begin) for text, ids in enumerate(texts) for begin in range(0, len(ids), size)]
        windows.sort(key=lambda window: len(texts[window[0]]) - window[1])
        states = [np.empty((len(ids), self.model.hidden_size), np.float32) for ids in texts]
        batch: list[tuple[int, int]] = []
        tokens = 0
        for number, window in enumerate(windows, 1):
            batch.append(window)
            tokens += min(size, len(texts[window[0]]) - window[1])
            if tokens >= self.batch_tokens or number == len(windows):
                sequences = [[self.first, *texts[text][begin : begin + size], self.last] for text, begin in batch]
                for (text, begin), encoded in zip(batch, self.model.encode(sequences), strict=True):
                    states[text][begin : begin + size] = encoded[1:-1].cpu().numpy()
                batch, tokens = [], 0
        return states


def _average_words(words: Sequence[Word], offsets: Sequence[tuple[int, int]], states: States) -> Encoded:
    """Averages the states of each word's tokens, and gives the means unit length."""
    # The word of each token, by its first character; -1 for a token outside all words.
    starts, ends = (np.array([getattr(word, side) for word in words] or [0]) for side in ("start", "end"))
    first = np.array([begin for begin, _ in offsets], np.intp)
    owner = np.searchsorted(starts, first, side="right") - 1
    inside = (owner >= 0) & (first < ends[owner]) & (np.array([end > begin for begin, end in offsets], bool))
    owner = np.where(inside, owner, -1)
    total = np.zeros((len(words), states.shape[1]), np.float32)
    np.add.at(total, owner[owner >= 0], states[owner >= 0])
    return Encoded(words, total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), MIN_NORM))


def encode_and_align(encoder: WordEncoder, texts: Sequence[tuple[str, str, str]]) -> list[Alignment]:
    """Encodes context, question and response of each row, and aligns the response with its context.

    The response is encoded behind the question, so that the states of a short answer depend on it.
    """
    parts = [choose_contexts(encoder.tokenizer, *text) for text in texts]
    contexts = [part for of_row in parts for part in of_row]
    both = [join(question, response) for _, question, response in texts]
    encoded = iter(encoder.encode([*contexts, *both], contexts=contexts))
    joined = [join_encoded([next(encoded) for _ in of_row]) for of_row in parts]
    rows = []
    for context, of_row, text, answer in zip(joined, parts, texts, encoded, strict=True):
        whole, question, response = text
        asked, words = split(answer, len(join(question, "")))
        pairs = compare_values(whole, response, question)
        rows.append(Alignment(context, asked, words, pairs=pairs, knowledge=whole, parts=of_row))
    return rows


def join_encoded(parts: Sequence[Encoded]) -> Encoded:
    """Joins parts of a text; each begins another sentence, and places of characters remain those in the part."""
    if len(parts) == 1:
        return parts[0]
    words: list[Word] = []
    for part in parts:
        first = words[-1].sentence + 1 if words else 0
        words += [replace(word, sentence=first + word.sentence) for word in part.words]
    return Encoded(words, np.concatenate([part.states for part in parts]))


def choose_contexts(tokenizer: Tokenizer, context: str, question: str, response: str) -> list[str]:
    """Returns what is encoded of a context, in one text or, of a long one, in several parts.

    A context of more than `MAX_TOKENS` is divided: the parts that share most tokens with question and response are
    kept, in their order. Of another, the passages, divided by empty lines, that are about something else than the
    response are left out: they only add words that resemble a wrong one. Each sentence of the response keeps the
    passages that have about as many of its and the question's content words as the one that has most.
    """
    if len(context) > SHORT:
        clean = make_encodable([context])[0]
        tokens, places = _tokenize(tokenizer, clean)
        if len(tokens) > MAX_TOKENS:
            begins = [0, *(found.end() for found in SENTENCE_END.finditer(clean))]
            start = divide(len(tokens), np.searchsorted(places, begins), PART)
            end = np.append(start[1:], len(tokens))
            asked_tokens, _ = _tokenize(tokenizer, make_encodable([f"{question}\n{response}"])[0])
            best = np.sort(rank_parts(asked_tokens, tokens, start, end, MAX_TOKENS // PART))
            bounds = np.append(places, len(clean))
            return [clean[bounds[start[part]] : bounds[end[part]]].strip() for part in best.tolist()]
    passages = list(dict.fromkeys(text for text in EMPTY_LINES.split(context) if text.strip()))
    if len(passages) <= 1:
        return [context]
    found = [_content_words(text) for text in passages]
    asked, sentences = _content_words(question), dict[int, set[str]]()
    for word in read_words(response):
        if word.kind != STOP:
            sentences.setdefault(word.sentence, set(asked)).add(word.norm)
    chosen = set[int]()
    for words in sentences.values():
        shared = [len(words & one) / len(words) for one in found]
        chosen.update(place for place, share in enumerate(shared) if share >= max(shared) - SHARE_MARGIN)
    return [PASSAGE_BREAK.join(passages[place] for place in sorted(chosen)) if chosen else context]


def _content_words(text: str) -> frozenset[str]:
    return _cached_content_words(text) if len(text) <= MAX_CACHED_CHARACTERS else _read_content_words(text)


def _read_content_words(text: str) -> frozenset[str]:
    return frozenset(word.norm for word in read_words(text) if word.kind != STOP)


_cached_content_words = lru_cache(maxsize=1024)(_read_content_words)  # passages come again with other responses


def join(question: str, response: str) -> str:
    """Joins a question and a response to the text that is encoded."""
    return f"{question}\n{response}" if question else response


def split(both: Encoded, start: int) -> tuple[Encoded, Encoded]:
    """Splits the words of a joined text at the first character of the response, whose places then count from 0."""
    count = sum(word.start < start for word in both.words)
    words = [replace(word, start=word.start - start, end=word.end - start) for word in both.words[count:]]
    return Encoded(both.words[:count], both.states[:count]), Encoded(words, both.states[count:])
