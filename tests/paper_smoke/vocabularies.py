"""Tokenizers with the sizes and special tokens of the published ones, made here.

Their words come from the embedded corpus; what is missing to the true size are tokens that no text has.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from data_modules.embedded.dialogue import exchanges

BPE_PIECES, UNIGRAM_PIECES = 3000, 2000  # learnt ones, of tens of thousands: most of the embedded corpus's words
UNLIKELY = -1000.0  # the score of a piece that shall never be chosen


def write_vocabulary(folder: Path, name: str) -> None:
    """Writes the tokenizer of that name: a key of VOCABULARIES."""
    VOCABULARIES[name]().save_pretrained(folder)


def corpus(num_dialogues: int = 300) -> Iterator[str]:
    """The texts that the pieces are learnt from."""
    for number in range(num_dialogues):
        for exchange in exchanges("train", 0, number, 4):
            yield from exchange.sentences
            yield from (turn.text for turn in exchange.history)
            yield exchange.faithful.text


def byte_pieces() -> tuple[list[str], list[tuple[str, str]]]:
    """Byte-level BPE: its pieces, bytes first, and its merges."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=BPE_PIECES, initial_alphabet=alphabet))
    return _learnt(tokenizer)


def sentence_pieces() -> tuple[list[str], list[tuple[str, str]]]:
    """BPE over words that begin with the mark of a space, as Llama's."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=BPE_PIECES))
    return _learnt(tokenizer)


def unigram_pieces() -> list[tuple[str, float]]:
    """A Unigram model's pieces with their scores."""
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:!?'\"()-"
    trainer = trainers.UnigramTrainer(vocab_size=UNIGRAM_PIECES, initial_alphabet=list(letters), unk_token="<unk>")
    tokenizer.train_from_iterator(corpus(), trainer)
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    return [(piece, score) for piece, score in pieces if piece != "<unk>"]


def _learnt(tokenizer: Any) -> tuple[list[str], list[tuple[str, str]]]:
    import json

    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(merge) for merge in model["merges"]]


def numbered(first: Sequence[str], pieces: Sequence[str], size: int, last: Sequence[str] = ()) -> dict[str, int]:
    """Numbers the tokens: special ones at either end, between them the pieces and unused tokens up to `size`."""
    unused = [f"<unused{number}>" for number in range(size - len(first) - len(pieces) - len(last))]
    tokens = [*first, *pieces, *unused, *last]
    assert len(tokens) == len(set(tokens)) == size
    return {token: number for number, token in enumerate(tokens)}


def scored(first: Sequence[str], size: int, last: Sequence[str] = ()) -> list[tuple[str, float]]:
    """The same for a Unigram model: every token with its score."""
    pieces = unigram_pieces()
    scores = dict(pieces) | dict.fromkeys(first, 0.0) | dict.fromkeys(last, 0.0)
    return [(token, scores.get(token, UNLIKELY)) for token in numbered(first, [p for p, _ in pieces], size, last)]


def roberta() -> Any:
    """RoBERTa's and BART's."""
    from transformers import RobertaTokenizer

    pieces, merges = byte_pieces()
    vocabulary = numbered(["<s>", "<pad>", "</s>", "<unk>"], pieces, 50_265, ["<mask>"])
    return RobertaTokenizer(vocab=vocabulary, merges=merges, model_max_length=512)


def gpt2() -> Any:
    """GPT-2's and DialoGPT's: neither padding nor beginning, one token for the end."""
    from transformers import GPT2Tokenizer

    pieces, merges = byte_pieces()
    vocabulary = numbered([], pieces, 50_257, ["<|endoftext|>"])
    return GPT2Tokenizer(vocab=vocabulary, merges=merges, model_max_length=1024)


def modernbert() -> Any:
    """ModernBERT's: OLMo's tokens, behind them BERT's special ones, and more unused ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces, merges = byte_pieces()
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    tail = [*special, *(f"[unused{number}]" for number in range(83))]
    vocabulary = numbered(["|||IP_ADDRESS|||", "<|padding|>"], pieces, 50_368, tail)
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    names = {f"{token.strip('[]').lower()}_token": token for token in special}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, model_input_names=["input_ids", "attention_mask"], model_max_length=8192, **names
    )


def deberta() -> Any:
    """DeBERTa-v3's: SentencePiece, the mask behind all others."""
    from transformers import DebertaV2Tokenizer

    pieces = scored(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], 128_001, ["[MASK]"])
    return DebertaV2Tokenizer(vocab=pieces, unk_id=3)


def t5() -> Any:
    """T5's: 32,000 pieces and 100 sentinels; the model has 28 rows more."""
    from transformers import T5Tokenizer

    sentinels = [f"<extra_id_{number}>" for number in reversed(range(100))]
    return T5Tokenizer(vocab=scored(["<pad>", "</s>", "<unk>"], 32_100, sentinels), model_max_length=512)


def llama() -> Any:
    """Llama 2's: bytes for what no piece has, and no token for padding."""
    from transformers import LlamaTokenizer

    pieces, merges = sentence_pieces()
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    return LlamaTokenizer(vocab=numbered(["<unk>", "<s>", "</s>", *fallback], pieces, 32_000), merges=merges)


def albert() -> Any:
    """ALBERT's."""
    from transformers import AlbertTokenizer

    return AlbertTokenizer(vocab=scored(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], 30_000), model_max_length=512)


VOCABULARIES: dict[str, Callable[[], Any]] = {
    "roberta": roberta,
    "gpt2": gpt2,
    "modernbert": modernbert,
    "deberta": deberta,
    "t5": t5,
    "llama": llama,
    "albert": albert,
}
