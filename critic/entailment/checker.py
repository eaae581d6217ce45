"""Defines `EntailmentChecker`: windows of a document times claims of a response, and how their scores are combined.

Documents are divided into windows and responses into claims as the packages of known detectors do. Their rules count
sentences as nltk's Punkt splits them; its English parameters are read from the local weights `punkt`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from critic.runtime import (
    ONNX,
    SINGLE,
    Request,
    apply_precision,
    calibration_pairs,
    check_precision,
    default_batch_tokens,
    judge_examples,
    pad_inputs,
)
from data_modules.encoding.tokens import tokenize
from faithkit import arguments
from faithkit.errors import UserError
from faithkit.fast import FIRST_TOKEN, accelerate, plan_batches
from faithkit.packages import needs_package
from faithkit.published.known_detectors import (
    BY_SENTENCES,
    EVEN,
    LINES,
    MEAN,
    SENTENCES,
    THRESHOLD,
    TOKENS,
    WORDS,
    WindowChecker,
    Windows,
)
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit.weights.load import check_vocabulary, import_transformers, load_config, load_model, load_tokenizer
from faithkit.weights.resolve import LOCAL, fetch, loading

ALIGNSCORE_NAMES = {
    "base_model.pooler.dense.": "classifier.dense.",  # both are a dense layer and tanh on the first state
    "base_model.": "roberta.",
    "tri_layer.": "classifier.out_proj.",
}
LINE_BREAK = "\n"
Count = Callable[[Sequence[str]], list[int]]  # the size of each sentence


@dataclass(frozen=True, slots=True)
class Head:
    """How an entailment model is loaded.

    Args:
        model: Its class in transformers.
        names: New beginnings of the names of tensors that transformers does not find; others are left out.
        num_labels: The number of its classes, if the weights are named otherwise.
    """

    model: str
    names: Mapping[str, str] = field(default_factory=dict)
    num_labels: int = 0


HEADS = {
    "classifier": Head("AutoModelForSequenceClassification"),
    "first_token": Head("AutoModelForSeq2SeqLM"),  # of an encoder-decoder, which writes one of two answers (MiniCheck)
    "t5_encoder": Head("T5ForTokenClassification", {"t5.": "", "": ""}, 2),  # its first state (HHEM)
    "alignscore": Head("RobertaForSequenceClassification", ALIGNSCORE_NAMES, 3),
}


def _read_tensors(source: str, file: str) -> dict[str, Tensor]:
    """Reads safetensors, or a Lightning checkpoint without unpickling anything but tensors and plain values."""
    if Path(source).is_dir():
        path = Path(source) / file
        if not path.is_file():
            raise UserError(f"{file} is missing", place=source, hint="copy it from the hub's repository")
    else:
        from huggingface_hub import hf_hub_download

        with loading(source) as name:
            path = Path(hf_hub_download(name, file))
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle's errors have no common class
        problem = f"the checkpoint is damaged, or has more than weights in it: {type(error).__name__}"
        raise UserError(problem, place=str(path), hint="copy or download it again; its code is not run") from error
    state = stored.get("state_dict") if isinstance(stored, dict) else None
    if not isinstance(state, dict):
        raise UserError("the checkpoint has no state_dict", place=str(path), hint="copy or download it again")
    return state


def split_sentences(text: str) -> list[str]:
    """Splits a text into sentences.

    Raises:
        UserError: nltk is not installed, or the parameters cannot be fetched.
    """
    return list(_punkt().tokenize(text))


@cache
def _punkt() -> Any:
    with needs_package("this detector, which divides texts into sentences,"):
        from nltk.tabdata import PunktDecoder
        from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    read, parameters, folder = PunktDecoder(), PunktParameters(), fetch(LOCAL["punkt"])
    with (folder / "collocations.tab").open(encoding="utf-8") as lines:
        parameters.collocations = set(read.tab2tups(lines))
    with (folder / "sent_starters.txt").open(encoding="utf-8") as lines:
        parameters.sent_starters = read.txt2set(lines)
    with (folder / "abbrev_types.txt").open(encoding="utf-8") as lines:
        parameters.abbrev_types = read.txt2set(lines)
    with (folder / "ortho_context.tab").open(encoding="utf-8") as lines:
        parameters.ortho_context = read.tab2intdict(lines)
    return PunktSentenceTokenizer(parameters)


def divide(document: str, windows: Windows | None, count: Count) -> list[str]:
    """Divides a document into windows; at least one, which may be empty.

    Args:
        count: Counts the units of each sentence.
    """
    if windows is None:
        return [document]
    size = windows.size
    if windows.rule == EVEN:  # as many windows as the document has `size` words, and one more
        sentences = split_sentences(document)
        step = max(len(sentences) // (sum(count([document])) // size + 1), 1)
        found = [" ".join(sentences[begin : begin + step]) for begin in range(0, len(sentences), step)]
    elif windows.rule == LINES:  # a line break is a sentence of its own
        lines = [[*split_sentences(line), LINE_BREAK] for line in document.split(LINE_BREAK)]
        sentences = [sentence for line in lines for sentence in line][:-1]
        filled = [" ".join(part).replace(" \n ", LINE_BREAK).strip() for part in _fill_windows(sentences, size, count)]
        found = [window for window in filled if window]
    else:  # one sentence a line; the original package also scores the empty window before a first one that is too long
        assert windows.rule == BY_SENTENCES
        found = [
            LINE_BREAK.join(part).strip(LINE_BREAK) for part in _fill_windows(split_sentences(document), size, count)
        ]
        found[-1:] = [window.replace(" \n ", LINE_BREAK).strip() for window in found[-1:]]
    return found or [""]


def _fill_windows(sentences: Sequence[str], size: int, count: Count) -> list[list[str]]:
    """Fills windows with whole sentences; before a first sentence that is too long there is an empty one."""
    parts: list[list[str]] = [[]]
    filled = 0
    for sentence, length in zip(sentences, count(sentences), strict=True):
        if filled + length > size:
            parts.append([])
            filled = 0
        parts[-1].append(sentence)
        filled += length
    return parts if sentences else []


def count_units(sentences: Sequence[str], unit: str, tokenizer: Any, max_length: int) -> list[int]:
    """Counts the tokens, words or treebank words of each sentence.

    Args:
        max_length: Of a longer sentence this many tokens are counted.
    """
    if unit == TOKENS:
        return [min(int(length), max_length) for length in tokenize(tokenizer, sentences).lengths]
    if unit == WORDS:
        return [len(sentence.split()) for sentence in sentences]
    from nltk.tokenize.destructive import NLTKWordTokenizer

    words = NLTKWordTokenizer()
    return [sum(len(words.tokenize(part)) for part in split_sentences(sentence)) for sentence in sentences]


RESPONSES_AT_ONCE = 512  # responses that are tokenised and sorted together


def split_claims(response: str, claims: str) -> list[str]:
    """Divides a response into its claims; at least one."""
    return (split_sentences(response) if claims == SENTENCES else []) or [response]


class EntailmentChecker:
    """Checks responses with an entailment model of others, by the rules of its declaration.

    A document that several responses share is divided once, and equal pairs of window and claim are read once. Pairs
    are batched by length, and scores do not depend on the batch, up to float rounding (1e-6 in fp32).

    Args:
        known: The declaration.
        model: The model that it declares.
        batch_tokens: Tokens of a batch; changes the speed, not the scores. None chooses by the device.
    """

    def __init__(self, known: WindowChecker, model: Any, tokenizer: Any, *, batch_tokens: int | None = None):
        self.known, self.model, self.tokenizer, self.threshold = known, model, tokenizer, THRESHOLD
        self.batch_tokens = arguments.read_count("batch_tokens", batch_tokens) or default_batch_tokens(model)

    @classmethod
    def load(
        cls,
        known: WindowChecker,
        source: str,
        base: str = "",
        *,
        precision: str = "32-true",
        batch_tokens: int | None = None,
        device: str | None = None,
    ) -> "EntailmentChecker":
        """Loads the model of a declaration.

        Args:
            source: A folder or hub name of its repository.
            base: The repository of its configuration and tokenizer, if it has none of its own.
            precision: 32-true, bf16, int8 (CPU), or auto.

        Raises:
            UserError: Files are missing, damaged, or of another model.
        """
        check_precision(precision)
        if precision == ONNX:
            raise UserError(f"{known.name} has no ONNX graph", hint="leave precision out, or use bf16, int8 or auto")
        import_transformers()
        import transformers

        head = HEADS[known.head]
        kind = getattr(transformers, head.model)
        with loading(base or source) as place:
            tokenizer = load_tokenizer(place)
            if head.names:
                config = load_config(transformers.AutoConfig, place)
            else:
                model = load_model(kind, place, pickled=True)
        if head.names:
            config.num_labels, tensors = head.num_labels, {}
            for name, tensor in _read_tensors(source, known.file or "model.safetensors").items():
                prefix = next((old for old in head.names if name.startswith(old)), None)
                if prefix is not None and not name.endswith("position_ids"):  # a buffer of older versions
                    tensors[head.names[prefix] + name.removeprefix(prefix)] = tensor
            model, hint = kind(config), "copy or download them again"
            try:
                report = model.load_state_dict(tensors, strict=False)
            except RuntimeError as error:  # shapes differ
                line = str(error).splitlines()[-1].strip()
                raise UserError(f"the weights do not fit: {line}", place=source, hint=hint) from error
            tied = {"transformer.encoder.embed_tokens.weight", "transformer.shared.weight"}  # T5's are one
            lost = [name for name in report.missing_keys if name not in tied]
            lost = lost or (["transformer.shared.weight"] if tied <= {*report.missing_keys} else [])
            if wrong := [*lost, *report.unexpected_keys]:
                problem = f"the weights lack or have too much: {', '.join(wrong[:3])}"
                raise UserError(problem, place=source, hint=hint)
        if (len(known.answers) or model.config.num_labels) <= known.supported:
            problem = f"{known.name} has a class {known.supported}, and these weights have {model.config.num_labels}"
            raise UserError(problem, place=source, hint=f"name a copy of {known.hub}")
        check_vocabulary(model, tokenizer, source)
        model = accelerate(model.eval(), FIRST_TOKEN)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        checker = cls(known, model.to(device), tokenizer, batch_tokens=batch_tokens)
        checker.model = apply_precision(
            checker.model, precision, device, lambda: checker.supported(*calibration_pairs())
        )
        return checker

    def set_threshold(self, threshold: float) -> None:
        """Sets the probability from which a response is labelled hallucinated."""
        self.threshold = threshold

    def __repr__(self) -> str:
        device = str(self.model.device)
        return f"EntailmentChecker({self.known.name!r}, threshold={self.threshold:.4g}, device={device!r})"

    @arguments.explain_keywords
    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields the predictions of the examples, in their order."""

        def judge(requests: Sequence[Request]) -> list[Prediction]:
            scores = 1 - self.supported([one.knowledge for one in requests], [one.response for one in requests])
            labels = np.where(scores >= self.threshold, HALLUCINATED, FAITHFUL).tolist()
            both = zip(labels, scores.tolist(), strict=True)
            return [Prediction(id=SINGLE, label=label, score=score) for label, score in both]

        yield from judge_examples(
            judge, examples, chunk_size=RESPONSES_AT_ONCE, description="checking", progress=progress
        )

    def supported(self, documents: Sequence[str], responses: Sequence[str]) -> NDArray[np.float64]:
        """Computes P(supported) of each response [responses]."""
        known = self.known
        unit = known.windows.unit if known.windows else ""
        count = partial(count_units, unit=unit, tokenizer=self.tokenizer, max_length=known.max_length)
        windows = {document: divide(document, known.windows, count) for document in dict.fromkeys(documents)}
        row_of: dict[tuple[str, str], int] = {}  # of each distinct pair of window and claim
        places = []  # the rows of each response [windows, claims]
        for document, response in zip(documents, responses, strict=True):
            claims = split_claims(response, known.claims)
            rows = [
                [row_of.setdefault((window, claim), len(row_of)) for claim in claims] for window in windows[document]
            ]
            places.append(np.array(rows, np.int64))
        tokens = self.encode(list(row_of))
        scores = np.zeros(len(tokens))
        lengths = np.array([len(row) for row in tokens], np.int32)
        for batch in plan_batches(lengths, None, self.batch_tokens, None) if tokens else ():
            inputs = pad_inputs([tokens[row] for row in batch], self.tokenizer.pad_token_id, self.model)
            if known.answers:
                start = torch.full((len(batch), 1), self.model.config.decoder_start_token_id)
                inputs["decoder_input_ids"] = start.to(self.model.device)
            with torch.inference_mode():
                logits = self.model(**inputs).logits
                logits = logits[:, 0] if logits.ndim == 3 else logits  # of the first token
                logits = logits[:, list(known.answers)] if known.answers else logits
                scores[batch] = logits.double().softmax(-1)[:, known.supported].cpu().numpy()
        best = [scores[rows].max(axis=0) for rows in places]  # the best window of each claim
        return np.array([each.mean() if known.over_claims == MEAN else each.min() for each in best], np.float64)

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        """Returns the token ids of each pair of window and claim, cut to the declared length."""
        if not pairs:
            return []
        known, tokenizer = self.known, self.tokenizer
        if known.text:
            # Braces in a document or a claim are unchanged.
            before, _, rest = known.text.replace("{eos}", tokenizer.eos_token or "").partition("{document}")
            between, _, after = rest.partition("{claim}")
            texts = [before + document + between + claim + after for document, claim in pairs]
            cut = {"truncation": True, "max_length": known.max_length} if known.max_length else {}
            return list(tokenizer(texts, return_attention_mask=False, **cut)["input_ids"])
        claims = tokenizer([claim for _, claim in pairs], add_special_tokens=False)["input_ids"]
        room = known.max_length - tokenizer.num_special_tokens_to_add(pair=True)
        rows: list[list[int]] = [[] for _ in pairs]
        for strategy in ("only_first", "longest_first"):  # a claim that leaves no room for its window is cut too
            is_cut = [(len(claim) >= room) == (strategy == "longest_first") for claim in claims]
            chosen = [row for row, wanted in enumerate(is_cut) if wanted]
            if not chosen:
                continue
            first, second = zip(*(pairs[row] for row in chosen), strict=True)
            found = tokenizer(list(first), list(second), truncation=strategy, max_length=known.max_length)
            for row, ids in zip(chosen, found["input_ids"], strict=True):
                rows[row] = ids
        return rows
