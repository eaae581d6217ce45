"""Compares known detectors with their originals: largest difference of P(supported), and CPU-seconds, in turns.

Both load the same random weights in the original layout, and read the same rows with one thread: embedded everyday
answers, and as many again with several documents joined.

Needs: an environment with the originals, and a folder with their checkouts (peers/README.md); skipped without them.

FAITHKIT_ORIGINALS_PYTHON=~/originals/bin/python FAITHKIT_ORIGINALS_CODE=~/checkouts python -m speed.known_speed
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as t

from faithkit.published.known_detectors import KnownLanguageModel, PairClassifier, known_detectors
from faithkit.records import Example, Turn, number_passages
from faithkit_workflows.detectors.loading import load_detector
from speed.measure import ROOT, BenchmarkParser, Ratio, start_worker

SPECIAL = {
    "roberta": ("<s>", "</s>", "<pad>", "<unk>"),
    "deberta": ("[CLS]", "[SEP]", "[PAD]", "[UNK]"),
    "t5": ("<pad>", "</s>", "<pad>", "<unk>"),  # T5 begins with its padding token
    "modernbert": ("[CLS]", "[SEP]", "[PAD]", "[UNK]"),
    "gemma": ("<bos>", "<eos>", "<pad>", "<unk>"),  # of mmBERT
    "eurobert": ("<|begin_of_text|>", "<|end_of_text|>", "<|end_of_text|>", "<|unknown|>"),  # it pads with its end
}
SIZE: dict[str, Any] = {"num_hidden_layers": 4, "num_attention_heads": 4, "initializer_range": 0.1}
PYTHON, CODE = "FAITHKIT_ORIGINALS_PYTHON", "FAITHKIT_ORIGINALS_CODE"
SCRIPT = Path(__file__).parent / "peers" / "known_worker.py"
ROWS = ROOT / "data_modules" / "everyday_answers" / "fitting.jsonl"


def write_tokenizer(folder: Path, family: str, texts: Iterable[str], max_length: int) -> Any:
    """Trains a tokenizer of a family on texts and writes it: BPE over bytes or marked spaces, or Unigram."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    begin, end, pad, unknown = SPECIAL[family]
    special = list(dict.fromkeys((begin, pad, end, unknown)))
    if family in ("roberta", "modernbert", "eurobert"):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(vocab_size=2000, special_tokens=special, initial_alphabet=alphabet)
    elif family == "gemma":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token=unknown))
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.decoder = decoders.Replace("▁", " ")
        special += [f"<0x{byte:02X}>" for byte in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=special)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=2000, special_tokens=special, unk_token=unknown)
    tokenizer.train_from_iterator(texts, trainer)
    pair = {"roberta": f"{begin} $A {end} {end} $B {end}", "t5": f"$A {end} $B {end}"}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end}" if family == "t5" else f"{begin} $A {end}",
        pair=pair.get(family, f"{begin} $A {end} $B {end}"),
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in dict.fromkeys((begin, end))],
    )
    names = {"pad_token": pad, "unk_token": unknown, "eos_token": end}
    if family != "t5":
        names |= {"cls_token": begin, "sep_token": end, "bos_token": begin}
    fast = t.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
        **names,
    )
    fast.save_pretrained(folder)
    stored = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    stored["tokenizer_class"] = "PreTrainedTokenizerFast"  # the name that older versions know
    (folder / "tokenizer_config.json").write_text(json.dumps(stored), encoding="utf-8")
    return fast


def write_known(root: Path, name: str, texts: Iterable[str], *, hidden_size: int = 64) -> Path:
    """Writes a model as `root/<its hub name>`, and returns the folder; what it takes from elsewhere is its `base`."""
    known: Any = known_detectors()[name]
    head, labels = getattr(known, "head", ""), getattr(known, "labels", None)
    folder = root / known.hub
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    texts = list(texts)
    if known.marks_spans:
        family = "eurobert" if "eurobert" in known.hub else "gemma" if "mmbert" in known.hub else "modernbert"
        tokenizer = write_tokenizer(folder, family, texts, 8192)
        size = {**_size(tokenizer, hidden_size), "max_position_embeddings": 8192}
        ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
        if family == "eurobert":
            made: Any = t.EuroBertConfig(**size, **ids, mask_token_id=ids["bos_token_id"], num_key_value_heads=2)
            made.num_labels = 2
            t.EuroBertForTokenClassification(made).save_pretrained(folder)
        else:
            ids |= {"cls_token_id": ids["bos_token_id"], "sep_token_id": ids["eos_token_id"]}
            made = t.ModernBertConfig(**size, **ids, local_attention=64)
            made.num_labels = 2
            t.ModernBertForTokenClassification(made).save_pretrained(folder)
    elif head == "first_token":
        model = _t5(folder, t.T5ForConditionalGeneration, texts, hidden_size)
        model.config.save_pretrained(folder)
        head = {"lm_head.weight": torch.randn_like(model.shared.weight) / 2}
        _write_tensors(folder, {key: tensor.clone() for key, tensor in model.state_dict().items()} | head)
        stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        stored["tie_word_embeddings"] = stored.pop("scale_decoder_outputs")  # as Flan-T5 has it: a head of its own
        (folder / "config.json").write_text(json.dumps(stored), encoding="utf-8")
    elif head == "t5_encoder":
        base = _base(root, folder, known.base)
        model = _t5(base, t.T5ForTokenClassification, texts, hidden_size)
        model.config.save_pretrained(base)
        tensors = {f"t5.{key}": tensor.clone() for key, tensor in model.state_dict().items()}
        tensors.pop("t5.transformer.encoder.embed_tokens.weight")
        _write_tensors(folder, tensors)
        code = {"AutoConfig": "configuration_hhem_v2.HHEMv2Config"}
        stored = {"model_type": "HHEMv2", "architectures": ["HHEMv2ForSequenceClassification"], "auto_map": code}
        (folder / "config.json").write_text(json.dumps(stored), encoding="utf-8")
    elif head == "alignscore":
        base = _base(root, folder, known.base)
        config = _roberta(base, texts, hidden_size)
        t.RobertaForMaskedLM(config).save_pretrained(base)
        # As Lightning wrote AlignScore's: encoder, three heads, the head of masked words.
        parts = {"base_model": t.RobertaModel(config), "mlm_head": t.RobertaForMaskedLM(config).lm_head}
        heads = (("bin_layer", 2), ("tri_layer", 3), ("reg_layer", 1))
        parts |= {part: torch.nn.Linear(config.hidden_size, classes) for part, classes in heads}
        state = {f"{part}.{key}": tensor for part, m in parts.items() for key, tensor in m.state_dict().items()}
        plain = {"model": "roberta-large", "using_pretrained": True, "adam_epsilon": 1e-6}
        checkpoint = {"state_dict": state, "hyper_parameters": plain, "epoch": 2, "global_step": 9}
        torch.save(checkpoint, folder / known.file)
    elif "roberta" in known.hub.lower():
        labels = {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"} if labels else {0: "LABEL_0", 1: "LABEL_1"}
        config = _roberta(folder, texts, hidden_size)
        config.num_labels, config.id2label = len(labels), labels
        t.RobertaForSequenceClassification(config).save_pretrained(folder)
    else:
        labels = {0: "contradiction", 1: "entailment", 2: "neutral"} if labels else {0: "LABEL_0", 1: "LABEL_1"}
        tokenizer = write_tokenizer(folder, "deberta", texts, 512 if labels else 2048)
        size = {**_size(tokenizer, hidden_size), "max_position_embeddings": 512, "pad_token_id": tokenizer.pad_token_id}
        size |= {"relative_attention": True, "position_buckets": 32, "pos_att_type": ["p2c", "c2p"]}
        size |= {"position_biased_input": False, "norm_rel_ebd": "layer_norm", "share_att_key": True}
        size |= {"type_vocab_size": 0, "pooler_hidden_size": hidden_size, "pooler_dropout": 0}
        config = t.DebertaV2Config(**size)
        config.num_labels, config.id2label = len(labels), labels
        t.DebertaV2ForSequenceClassification(config).save_pretrained(folder)
    return folder


def _size(tokenizer: Any, hidden_size: int) -> dict[str, Any]:
    return {"vocab_size": len(tokenizer), "hidden_size": hidden_size, "intermediate_size": 2 * hidden_size, **SIZE}


def _base(root: Path, folder: Path, name: str) -> Path:
    base = root / name
    base.mkdir(parents=True, exist_ok=True)
    if not (folder / "base").exists():
        (folder / "base").symlink_to(base.resolve())
    return base


def _roberta(folder: Path, texts: Iterable[str], hidden_size: int) -> Any:
    tokenizer = write_tokenizer(folder, "roberta", texts, 512)
    ids = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.bos_token_id}
    size = {**_size(tokenizer, hidden_size), "max_position_embeddings": 514, "type_vocab_size": 1}
    return t.RobertaConfig(**size, **ids, eos_token_id=tokenizer.eos_token_id, layer_norm_eps=1e-5)


def _t5(folder: Path, model_class: Any, texts: Iterable[str], hidden_size: int) -> Any:
    tokenizer = write_tokenizer(folder, "t5", texts, 512)
    size: dict[str, Any] = {"d_model": hidden_size, "d_kv": 16, "d_ff": 2 * hidden_size, "num_layers": 4}
    size |= {"num_heads": 4, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    size |= {
        "initializer_factor": 0.1,
        "pad_token_id": 0,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": 0,
    }
    config = t.T5Config(vocab_size=len(tokenizer) + 28, **size)
    config.num_labels = 2
    model = model_class(config).eval()
    with torch.no_grad():  # attention that is not uniform, and scores that differ
        for name, tensor in model.named_parameters():
            tensor *= 16 if "Attention." in name else 4 if name.startswith("classifier") else 1
    return model


def _write_tensors(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    from safetensors.torch import save_file

    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    """Compares all, or those named."""
    parser = BenchmarkParser(__doc__, rounds=3, rows=50)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("names", nargs="*")
    options = parser.parse()
    if not {PYTHON, CODE} <= os.environ.keys():
        print(f"skipped: {PYTHON} or {CODE} is not set; hint: speed/peers/README.md", file=sys.stderr)
        return
    torch.set_num_threads(1)
    names = options.names or [
        name for name, one in known_detectors().items() if not isinstance(one, KnownLanguageModel)
    ]
    short, long = make_rows(options.rows, join=False), make_rows(options.rows, join=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            rows = short if isinstance(known_detectors()[name], PairClassifier) else long
            print(compare(name, Path(folder), rows, options.rounds, options.hidden_size), flush=True)


def make_rows(count: int, *, join: bool) -> list[dict[str, Any]]:
    """Takes rows of different documents.

    Args:
        join: Each second row has the documents of its neighbours before and after it. Where the original cuts a
            document and ours reads it in windows, rows stay short.
    """
    stored = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    chosen = stored[:: len(stored) // count][:count]
    rows = []
    for number, row in enumerate(chosen):
        near = range(number - 2, number + 3 + number // 8) if join and number % 2 else [number]
        rows.append(
            {
                "passages": [chosen[place % count]["knowledge"] for place in near],
                "question": row["question"] if number % 3 else None,
                "response": row["response"],
            }
        )
    return rows


def compare(name: str, root: Path, rows: list[dict[str, Any]], rounds: int, hidden_size: int) -> str:
    """Compares one detector, and describes the result in a line."""
    texts = [text for row in rows for text in (*row["passages"], row["question"] or "", row["response"])]
    known = known_detectors()[name]
    is_tagger, language = known.marks_spans, getattr(known, "prompts", "")
    examples = []
    for row in rows:  # only a tagger reads their passages and their question
        knowledge = number_passages(row["passages"]) if is_tagger else "\n".join(row["passages"])
        history = (Turn(speaker="user", text=row["question"]),) if is_tagger and row["question"] else ()
        text = {"knowledge": knowledge, "history": history, "response": row["response"]}
        examples.append(Example(id="1", source="speed", split="all", group="1", **text))
    folder = write_known(root, name, texts, hidden_size=hidden_size)
    if language:  # its prompts are files of the original package
        command = [os.environ[PYTHON], "-c", "import lettucedetect as one; print(one.__path__[0])"]
        package = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()[-1]
        shutil.copytree(Path(package) / "prompts", folder / "prompts", dirs_exist_ok=True)
    detector = load_detector(f"{name}:{folder}", precision="32-true", batch_tokens=None)
    path = root / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    ours, theirs = [], []
    command = [os.environ[PYTHON], str(SCRIPT), "--name", name, "--root", str(root), "--rows", str(path)]
    command += ["--model", known.hub, "--language", language]
    with start_worker([*command, "--code", os.environ[CODE]], HF_HUB_OFFLINE="1") as ask:
        ask(0, 2)
        list(detector.predict_examples(examples[:2]))
        for _ in range(rounds):
            answer = ask(0, len(rows))
            theirs.append(answer["seconds"])
            begin = time.process_time()
            found = [one.score or 0.0 for one in detector.predict_examples(examples)]
            ours.append(time.process_time() - begin)
    difference = np.abs(1 - np.array(found) - np.array(answer["supported"]))
    spread = f"scores {min(found):.3f} to {max(found):.3f}"
    same = int((difference <= 1e-5).sum())
    return (
        f"{name}: largest difference {difference.max():.1e}, {same} of {len(rows)} within 1e-5, {spread}; "
        f"{Ratio.of(theirs, ours)} as fast"
    )


if __name__ == "__main__":
    main()
