"""What detectors share: they read requests, load a checkpoint, and run it in fp32, bf16, int8, or as an ONNX graph.

`export.py format=onnx` writes the graph. Each window is run separately without padding. A graph in int8 measures the
ranges of its activations at run time, so that otherwise a score would depend on its batch.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm

from critic.weights import EVIDENCE, longest_sequence
from data_modules.encoding.encoder import Ragged, padded_inputs, question_text
from data_modules.encoding.pair_encoder import EVIDENCE as COLUMNS
from data_modules.encoding.tokens import PairTemplate, load_tokenizer
from faithkit.arguments import (
    ASSISTANTS,
    name_list,
    read_choice,
    read_examples,
    read_flag,
    read_iterable,
    read_passages,
    read_rows,
    read_text,
    read_turns,
)
from faithkit.errors import UserError, shorten
from faithkit.fast import accelerate, can_quantise, computes_in_bf16, pack_inputs, quantise, to_bf16
from faithkit.files.atomic import hash_file
from faithkit.files.model_folder import SIDECAR, Sidecar, card_languages, read_settings, read_stored, repair_hint
from faithkit.languages import ENGLISH
from faithkit.packages import needs_package
from faithkit.provenance.used_model import trained_languages
from faithkit.records import Example, Prediction, Turn
from faithkit.settings.types import DETECTOR_PRECISIONS
from faithkit.weights.load import check_vocabulary, import_transformers, load_config, load_model
from faithkit.weights.resolve import fetch_folder, loading

_END = object()
TURN_BREAK = "\n"  # between turns, as in `question_text`
SINGLE = "0"  # the id of the result of a single response
ONNX = "onnx"  # the precision, the folder of the graph, and its key in faithkit.json
GRAPH, QUANTISED = f"{ONNX}/model.onnx", f"{ONNX}/model_quantized.onnx"  # the usual names on the hub
# Tokens of a batch. A CPU is fastest while a layer's activations fit its cache, and small batches of similar lengths
# have the least padding; a GPU needs large batches.
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 65_536

Knowledge: TypeAlias = str | Sequence[str | Mapping[str, Any]]  # a text, or passages: texts, or objects with one
HistoryTurn: TypeAlias = str | Turn | tuple[str, str] | Mapping[str, str]  # a text, or (speaker, text) in some form
History: TypeAlias = str | Sequence[HistoryTurn] | None  # the last turn, or all turns, the oldest first
Join: TypeAlias = Callable[[Sequence[str]], str]  # joins passages to one text


@dataclass(frozen=True, slots=True)
class Request:
    """One response with its knowledge and history.

    Args:
        question: The turns before the response, the oldest first, joined by line breaks.
        asked: Those of them that the assistant has not written; None where the question is one text.
    """

    knowledge: str
    question: str
    response: str
    asked: str | None = None


Judge: TypeAlias = Callable[[list[Request]], Sequence[Prediction]]  # returns a result for each request, in order


def request_of(example: Example) -> Request:
    """Makes a request from an example."""
    asked = _join_asked([(turn.speaker, turn.text) for turn in example.history])
    return Request(example.knowledge, question_text(example), example.response, asked)


def _join_asked(turns: Sequence[tuple[str | None, str]]) -> str:
    """Joins the turns of others than the assistant; without names two speakers take turns, and the user was last."""
    last = len(turns) - 1
    return TURN_BREAK.join(
        text
        for place, (speaker, text) in enumerate(turns)
        if (speaker.lower() not in ASSISTANTS if speaker else (last - place) % 2 == 0)
    )


def answer_call(judge: Judge, knowledge: Any, response: Any, history: Any, join: Join) -> Prediction | list[Prediction]:
    """Judges what one call passes, a single response or a list of them; results of a list are numbered.

    Raises:
        UserError: Lists have different lengths, or a text is empty or no text.
    """
    rows = read_rows(knowledge, response, history)
    if isinstance(response, str):
        return judge([read_request(*rows[0], None, join)])[0]
    results = judge([read_request(*row, number, join) for number, row in enumerate(rows)])
    return [replace(one, id=str(number)) for number, one in enumerate(results)]


def judge_examples(
    judge: Judge, examples: Sequence[Example], *, chunk_size: int, description: str, progress: bool
) -> Iterator[Prediction]:
    """Judges examples chunk by chunk, and yields the results in their order; `description` labels the progress bar."""
    examples, quiet = read_examples(examples), not read_flag("progress", progress)
    for begin in tqdm(range(0, len(examples), chunk_size), description, disable=quiet, unit="chunk"):
        chunk = examples[begin : begin + chunk_size]
        for example, result in zip(chunk, judge([request_of(one) for one in chunk]), strict=True):
            yield replace(result, id=example.id)


def read_request(knowledge: Any, response: Any, history: Any, number: int | None, join: Join) -> Request:
    """Reads and checks one request; errors name its number in a list."""
    place = None if number is None else f"item {number}"
    passages = read_passages("knowledge", knowledge, place)
    turns = [] if history is None or isinstance(history, str) else read_turns("history", history, place)
    question = history if isinstance(history, str) else TURN_BREAK.join(text for _, text in turns)
    asked = _join_asked(turns) if turns else None
    return Request(join(passages), question, read_text("response", response, place), asked)


def stream_results(
    judge: Judge,
    knowledge: Iterable[Any],
    response: Iterable[Any],
    history: Iterable[Any] | None,
    *,
    join: Join,
    chunk_size: int,
    description: str,
    progress: bool,
) -> Iterator[Prediction]:
    """Judges responses chunk by chunk, and yields the results one by one.

    Args:
        description: Label of the progress bar.
        progress: Shows the progress bar.

    Raises:
        UserError: One column ends before the others, or an item is invalid.
    """
    given = {"knowledge": knowledge, "response": response} | ({} if history is None else {"history": history})
    columns = [read_iterable(name, column) for name, column in given.items()]
    rows = enumerate(zip_longest(*columns, fillvalue=_END))
    total = len(response) if isinstance(response, Sized) else None
    with tqdm(total=total, desc=description, disable=not read_flag("progress", progress), unit="response") as bar:
        while chunk := list(islice(rows, chunk_size)):
            requests = []
            for number, row in chunk:
                if ended := [name for name, item in zip(given, row, strict=True) if item is _END]:
                    problem = f"{name_list(ended)} ended before the others"
                    hint = "give as many of each as there are responses"
                    raise UserError(problem, place=f"item {number}", hint=hint)
                requests.append(read_request(row[0], row[1], row[2] if len(row) > 2 else None, number, join))
            for (number, _), result in zip(chunk, judge(requests), strict=True):
                yield replace(result, id=str(number))
            bar.update(len(chunk))


class Output(NamedTuple):
    """The part of a transformers output that detectors read."""

    logits: Tensor


class OnnxModel:
    """Runs a classifier as an ONNX graph on the CPU.

    Args:
        path: The graph, from token ids and masks [windows, tokens] to `logits`.
        config: The configuration of the exported model.
    """

    def __init__(self, path: Path, config: Any):
        runtime = import_runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the cores may be shared
        self.config, self.device = config, torch.device("cpu")
        self._session = runtime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
        self._names = [one.name for one in self._session.get_inputs()]

    def __call__(self, *, attention_mask: Tensor | None = None, **inputs: Tensor) -> Output:
        """Computes the logits of a batch with padding on the right; the logits of padding are 0.

        Args:
            attention_mask: [windows, tokens]; None without padding.
            inputs: `input_ids` and perhaps `token_type_ids` [windows, tokens].
        """
        ids = inputs["input_ids"]
        mask = torch.ones_like(ids) if attention_mask is None else attention_mask
        columns = {name: tensor.numpy() for name, tensor in {**inputs, "attention_mask": mask}.items()}
        rows = [
            self._session.run(["logits"], {name: columns[name][row : row + 1, :length] for name in self._names})[0][0]
            for row, length in enumerate(mask.sum(1).tolist())
        ]
        if rows[0].ndim == 1:  # a class for each window
            return Output(torch.from_numpy(np.stack(rows)))
        logits = np.zeros((*ids.shape, rows[0].shape[-1]), np.float32)
        for row, found in enumerate(rows):
            logits[row, : len(found)] = found
        return Output(torch.from_numpy(logits))


def import_runtime() -> Any:
    """Imports onnxruntime, an optional package."""
    with needs_package("precision=onnx"):
        import onnxruntime
    return onnxruntime


def check_graph_is_enough(stored: Mapping[str, Any], folder: Path) -> None:
    """Refuses a detector that reads hidden states, which the graph does not output."""
    thresholds = stored.get("thresholds")
    weights = thresholds.get(EVIDENCE) if isinstance(thresholds, dict) else None
    if isinstance(weights, list) and len(weights) > len(COLUMNS) + 2:  # besides the log-odds and the bias
        problem = "this critic uses the weakest tokens, which need hidden states that an ONNX graph lacks"
        raise UserError(problem, place=str(folder), hint="use precision=auto, or train with model.evidence=words")
    layout = stored.get("layout")
    if isinstance(layout, dict) and layout.get("token_support"):
        problem = "this tagger compares hidden states, which an ONNX graph lacks"
        raise UserError(problem, place=str(folder), hint="use precision=auto")


def load_graph(folder: Path, config: Any) -> OnnxModel:
    """Loads the graph in a model's folder after checking its hash.

    Raises:
        UserError: There is no graph, it was not exported with these weights, or it is broken.
    """
    stored = read_stored(folder) or {}
    check_graph_is_enough(stored, folder)
    described = stored.get(ONNX)
    if described is None:
        hint = f"faithkit export checkpoint={folder} format=onnx   writes one"
        raise UserError("precision=onnx, but this model has no ONNX graph", place=str(folder), hint=hint)
    hint = "export it again with format=onnx"
    if not isinstance(described, dict) or described.get("file") not in (GRAPH, QUANTISED):
        raise UserError(
            f"broken sidecar: {ONNX} is {shorten(described)}", place=str(folder / SIDECAR), hint=repair_hint(folder)
        )
    name = described["file"]
    if not (folder / name).is_file():
        raise UserError(f"{name} is missing", place=str(folder), hint=hint)
    if hash_file(folder / name) != described.get("sha256"):
        raise UserError(f"{name} is not the graph that was exported with these weights", place=str(folder), hint=hint)
    import_runtime()
    try:
        return OnnxModel(folder / name, config)
    except Exception as error:  # onnxruntime's errors have no common class
        problem = f"onnxruntime cannot load {name}: {str(error)[:160]}"
        raise UserError(problem, place=str(folder), hint="pip install -U onnxruntime, or export it again") from error


def apply_precision(model: Any, precision: str, device: str, calibrate: Callable[[], object]) -> Any:
    """Converts the model; `auto` is bf16 if the hardware supports it, int8 on other x86 CPUs.

    Args:
        calibrate: Runs the model on typical texts; int8 measures the ranges of activations on them.
    """
    if precision == "auto":
        precision = "bf16" if computes_in_bf16(device) else "int8" if can_quantise(device) else "32-true"
    if precision == "bf16":
        model = to_bf16(model)
    if precision == "int8":
        if not can_quantise(device):
            raise UserError("int8 scoring is for x86 CPUs", hint="use bf16 on a GPU, else 32-true")
        quantise(model, calibrate)
        if computes_in_bf16(device):
            to_bf16(model)
    return model if precision == ONNX else accelerate(model)


def default_batch_tokens(model: Any) -> int:
    """Returns the tokens of a batch of pairs that suit the model's device."""
    return CPU_BATCH_TOKENS if model.device.type == "cpu" else GPU_BATCH_TOKENS


def check_precision(precision: str) -> None:
    """Raises a UserError for an unknown precision."""
    read_choice("precision", precision, DETECTOR_PRECISIONS)


def calibration_pairs() -> tuple[list[str], list[str]]:
    """Returns fixed pairs with knowledge of different lengths, for the calibration of int8."""
    from data_modules.embedded.corpus import generate

    examples = list(generate("train", 384))
    knowledge = [" ".join(e.knowledge for e in examples[i : i + 1 + i % 8]) for i in range(48)]
    return knowledge, [example.response for example in examples[:48]]


def calibration_requests() -> list[Request]:
    """Returns fixed requests with knowledge of different lengths, for the calibration of int8."""
    from data_modules.embedded.corpus import generate

    examples = list(generate("train", 192))
    contexts = [" ".join(e.knowledge for e in examples[8 * i : 8 * i + 1 + i % 8]) for i in range(24)]
    return [Request(text, question_text(e), e.response) for text, e in zip(contexts, examples[::8], strict=True)]


def to_inputs(batch: Mapping[str, NDArray[Any]], model: Any, *, can_pack: bool = False) -> dict[str, Any]:
    """Makes the inputs of a model from a padded batch; without a mask, where nothing is padded, attention is faster.

    Args:
        can_pack: Packs the rows on a GPU if the model takes them: for logits of sequences, not for states of tokens.
    """
    inputs = {name: torch.from_numpy(array) for name, array in batch.items()}
    if can_pack and model.device.type == "cuda" and "packing" in (packed := pack_inputs(model, inputs)):
        return packed
    if bool(batch["attention_mask"].all()):
        del inputs["attention_mask"]
    return {name: side.to(model.device) for name, side in inputs.items()}


def pad_inputs(rows: Sequence[Sequence[int]], pad_id: int, model: Any) -> dict[str, Any]:
    """Pads rows of token ids at the right, and makes the inputs of a model from them."""
    return to_inputs(padded_inputs(Ragged.from_lists(rows), pad_id), model)


class LoadedCheckpoint(NamedTuple):
    """A model in fp32 or its ONNX graph, with tokenizer, device, settings (None without faithkit.json), languages."""

    model: Any
    tokenizer: Any
    device: str
    settings: Any
    languages: tuple[str, ...]


def load_checkpoint(
    path: str, auto: str, kind: str, build: Callable[[Sidecar], Any], device: str | None, *, onnx: bool = False
) -> LoadedCheckpoint:
    """Loads a model from a path; no code in it is executed.

    Args:
        auto: The name of transformers' Auto class.
        kind: The kind that faithkit.json must have.
        build: Makes settings from faithkit.json.
        device: None takes a GPU if there is one.
        onnx: Loads the exported ONNX graph, on the CPU, instead of the weights.
    """
    if onnx and device not in (None, "cpu"):
        raise UserError(f"precision=onnx runs on the CPU, and device is {device!r}", hint="leave device out")
    import_transformers()
    import transformers

    folder = fetch_folder(path, with_graph=onnx)
    settings = read_settings(folder, kind, build) if folder else None
    if settings:
        languages = trained_languages(settings.origin)
    else:
        languages = (card_languages(folder) if folder else None) or (ENGLISH,)
    with loading(str(folder or path)) as source:
        config = load_config(transformers.AutoConfig, source)
        if settings is None:  # weights of others need the required head
            head = auto.removeprefix("AutoModel")
            names = config.architectures or [head]
            if not any(name.endswith(head) for name in names):
                what = {"ForTokenClassification": "token", "ForSequenceClassification": "sequence"}[head]
                problem = f"a {what} classifier is needed, and these are the weights of {', '.join(names)}"
                raise UserError(problem, place=source, hint=f"give a trained {kind}, or train one from these weights")
        tokenizer = load_tokenizer(source)
        PairTemplate.of(tokenizer)  # fails for a tokenizer that makes no pairs
        if onnx:
            return LoadedCheckpoint(load_graph(Path(source), config), tokenizer, "cpu", settings, languages)
        model = load_model(getattr(transformers, auto), source, config=config)
        check_vocabulary(model, tokenizer, source)
    if folder and settings:
        labels, longest = tuple(model.config.id2label.values()), longest_sequence(model)
        problem = ""
        if labels != settings.labels:
            problem = f"labels are {shorten(settings.labels)}, and config.json's are {shorten(labels)}"
        if longest is not None and settings.max_length > longest:
            problem = f"layout.max_length is {settings.max_length}, but this encoder reads at most {longest} tokens"
        if problem:
            raise UserError(f"broken sidecar: {problem}", place=str(folder / SIDECAR), hint=repair_hint(folder))
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return LoadedCheckpoint(model.eval().to(device), tokenizer, device, settings, languages)
