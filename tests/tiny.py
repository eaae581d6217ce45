"""Tiny models of random weights with real tokenizers, in the forms that the hub has them."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

WORDS = (
    "the a of in is was it he she they and or not no yes river city king music food year people water stone book "
    "plays wrote born lives long high old new great small red blue green one two three four five hundred thousand i "
    "you we my your love like think know called made from to with by for on at as but film game dog cat tree"
).split()
T5_SIZE = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}


def words(count: int, shift: int = 0) -> str:
    """A text of so many words that the tokenizers know."""
    return " ".join(WORDS[(place + shift) % len(WORDS)] for place in range(count))


def write_tokenizer(folder: Path, kind: str = "wordpiece") -> None:
    """A fast tokenizer: `wordpiece` as BERT's, `bpe` as RoBERTa's, `unigram` as DeBERTa's and T5's."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    corpus = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(len(WORDS))]
    if kind == "wordpiece":
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special)
        pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
        cls, sep, pad, names = "[CLS]", "[SEP]", "[PAD]", ["input_ids", "token_type_ids", "attention_mask"]
    else:
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        if kind == "bpe":
            tokenizer = Tokenizer(models.BPE())
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.decoder = decoders.ByteLevel()
            alphabet = pre_tokenizers.ByteLevel.alphabet()
            trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, initial_alphabet=alphabet)
        else:
            tokenizer = Tokenizer(models.Unigram())
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
            tokenizer.decoder = decoders.Metaspace()
            trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>")
        pair = "<s> $A </s> </s> $B </s>"
        cls, sep, pad, names = "<s>", "</s>", "<pad>", ["input_ids", "attention_mask"]
    tokenizer.train_from_iterator([*corpus, "abcdefghijklmnopqrstuvwxyz 0123456789 .,!?'"], trainer)
    if kind == "wordpiece":  # training numbers pieces otherwise each time, and random weights would mean other words
        found = sorted(tokenizer.get_vocab())
        single = [piece for piece in found if len(piece.removeprefix("##")) == 1]
        order = dict.fromkeys([*special, *single, *sorted(WORDS), *found])  # other pieces vary, so they come last
        tokenizer.model = models.WordPiece({piece: number for number, piece in enumerate(order)}, unk_token="[UNK]")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=pair,
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (cls, sep)],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token=cls, sep_token=sep, pad_token=pad, model_input_names=names
    )
    fast.save_pretrained(folder)


@cache
def tiny_tokenizer(kind: str) -> Any:
    """A tokenizer as `write_tokenizer` writes it, trained once: another training would number its tokens otherwise."""
    from data_modules.encoding.tokens import load_tokenizer

    with TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), kind)
        return load_tokenizer(folder)


def bert_config(**values: Any) -> Any:
    """The configuration of a tiny BERT for the `wordpiece` tokenizer; values stand above the usual ones."""
    from transformers import BertConfig

    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return BertConfig(**{"vocab_size": 400, **size, **values})


def write_bert(folder: Path, *, seed: int = 0, hidden_size: int = 32, num_layers: int = 2) -> Path:
    """A tiny BERT encoder with its tokenizer, as a Hugging Face folder."""
    import torch
    from transformers import BertModel

    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    torch.manual_seed(seed)
    size = {"hidden_size": hidden_size, "num_hidden_layers": num_layers, "intermediate_size": 2 * hidden_size}
    BertModel(bert_config(**size, max_position_embeddings=128)).save_pretrained(folder)
    return folder


def write_critic(folder: Path, *names: str) -> Path:
    """Saves an untrained critic from elsewhere, whose classes have these names or ours."""
    import torch
    from transformers import BertForSequenceClassification

    write_tokenizer(folder)
    torch.manual_seed(0)
    by_number = dict(enumerate(names or ("faithful", "hallucinated")))
    config = bert_config(max_position_embeddings=128, num_labels=2, id2label=by_number, initializer_range=0.5)
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def write_language_model(
    folder: Path, family: str, *, seed: int = 0, num_places: int = 128, hidden_size: int = 32
) -> Path:
    """A tiny `t5`, `bart`, `gpt2` or `llama` without dropout, with its tokenizer, as a Hugging Face folder.

    Args:
        num_places: Positions that BART has.
        hidden_size: Of a Llama; vLLM's CPU build wants heads of 32.
    """
    import torch
    import transformers as t

    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, "unigram" if family == "t5" else "bpe")
    tokenizer = t.AutoTokenizer.from_pretrained(folder)
    tokenizer.eos_token, tokenizer.unk_token = "</s>", "<unk>"
    tokenizer.save_pretrained(folder)
    shared = {
        "vocab_size": len(tokenizer) + 1,  # as some have: more rows than tokens
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    torch.manual_seed(seed)
    model: t.PreTrainedModel
    if family == "t5":
        model = t.T5ForConditionalGeneration(t.T5Config(**shared, **T5_SIZE, dropout_rate=0.0))
    elif family == "bart":
        sides = {"layers": 2, "attention_heads": 2, "ffn_dim": 64}
        sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sides.items()}
        plain = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
        config = t.BartConfig(**shared, **sizes, **plain, d_model=32, max_position_embeddings=num_places)
        model = t.BartForConditionalGeneration(config)
    elif family == "gpt2":
        plain = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
        model = t.GPT2LMHeadModel(t.GPT2Config(**shared, **plain, n_embd=32, n_layer=2, n_head=2, n_positions=512))
    else:
        assert family == "llama", family
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        sizes = {"hidden_size": hidden_size, "num_hidden_layers": 2, "intermediate_size": 2 * hidden_size}
        config = t.LlamaConfig(**shared, **heads, **sizes)
        model = t.LlamaForCausalLM(config)
    model.save_pretrained(folder)
    return folder


def write_nli(folder: Path, positions: int = 48) -> Path:
    """An NLI model of three classes, in another order than ours."""
    import torch
    from transformers import BertForSequenceClassification

    write_tokenizer(folder)
    torch.manual_seed(0)
    config = bert_config(
        max_position_embeddings=positions,
        num_labels=3,
        id2label={0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"},
        initializer_range=0.5,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder
