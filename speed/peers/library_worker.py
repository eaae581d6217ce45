"""Scores or writes with a library; run by the Python of its environment, so it imports nothing of ours.

PYTHON library_worker.py score optimum|optimum_int8|torchao_int8 FOLDER ROWS
PYTHON library_worker.py write ctranslate2|ctranslate2_int8|continuous|continuous_bf16 FOLDER ROWS

FOLDER has a model of transformers. ROWS of `score` are JSON lines {"first", "second"}; the library gets batches of 32
of similar length. ROWS of `write` are lines {"ids"}, with the settings of decoding in the first. Each line of the input
is answered by one line of JSON: the CPU-seconds, and the probabilities or the token ids.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

BATCH_SIZE = 32


def main() -> None:
    """Loads the model, then works once for each line of the input."""
    task, how, folder, path = sys.argv[1:]
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to stderr
    import torch

    torch.set_num_threads(1)
    with TemporaryDirectory() as scratch:
        load: Any = load_classifier if task == "score" else load_writer
        work = load(how, folder, scratch, rows)
        for _ in sys.stdin:
            begin = time.process_time()
            found = work()
            print(json.dumps({"seconds": time.process_time() - begin, "found": found}), file=answers, flush=True)


def load_classifier(how: str, folder: str, scratch: str, rows: list[Any]) -> Callable[[], list[float]]:
    """Loads a classifier of pairs of texts."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if how.startswith("optimum"):
        import onnxruntime
        from optimum.onnxruntime import ORTModelForSequenceClassification, ORTQuantizer
        from optimum.onnxruntime.configuration import AutoQuantizationConfig

        threads = onnxruntime.SessionOptions()
        threads.intra_op_num_threads = threads.inter_op_num_threads = 1
        model = ORTModelForSequenceClassification.from_pretrained(folder, export=True, session_options=threads)
        if how == "optimum_int8":
            config = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=True)
            ORTQuantizer.from_pretrained(model).quantize(save_dir=scratch, quantization_config=config)
            model = ORTModelForSequenceClassification.from_pretrained(
                scratch, file_name="model_quantized.onnx", session_options=threads
            )
    else:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
        quantize_(model, Int8DynamicActivationInt8WeightConfig())

    @torch.inference_mode()
    def score() -> list[float]:
        texts = [[row[name] for row in rows] for name in ("first", "second")]
        encoded = tokenizer(*texts, truncation="only_first", max_length=256)
        order = sorted(range(len(rows)), key=lambda n: len(encoded["input_ids"][n]))
        scores = [0.0] * len(rows)
        for begin in range(0, len(rows), BATCH_SIZE):
            part = order[begin : begin + BATCH_SIZE]
            batch = {name: [values[n] for n in part] for name, values in encoded.items()}
            logits = model(**tokenizer.pad(batch, return_tensors="pt")).logits
            for n, score in zip(part, logits.softmax(-1)[:, 1].tolist(), strict=True):
                scores[n] = score
        return scores

    return score


def load_writer(how: str, folder: str, scratch: str, rows: list[Any]) -> Callable[[], list[list[int]]]:
    """Loads a model that continues prompts, or answers them by a decoder."""
    settings, prompts = rows[0], [row["ids"] for row in rows[1:]]
    longest, shortest, eos = settings["max_new_tokens"], settings["min_new_tokens"] or 0, settings["eos_id"]
    if how.startswith("continuous"):
        import torch
        from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

        dtype = torch.bfloat16 if how.endswith("bf16") else torch.float32
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()
        config = GenerationConfig(
            max_new_tokens=longest, do_sample=False, eos_token_id=eos, pad_token_id=settings["pad_id"]
        )
        # The size of the cache is found from a GPU's memory; on a CPU it would take all of it.
        limits = ContinuousBatchingConfig(block_size=32, num_blocks=1024, max_batch_tokens=1024)

        def write() -> list[list[int]]:
            found = model.generate_batch(prompts, config, limits, progress_bar=False)
            numbers = {int(name.rpartition("_")[2]): list(one.generated_tokens) for name, one in found.items()}
            return [numbers[n] for n in sorted(numbers)]

        return write

    import ctranslate2
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    ctranslate2.converters.TransformersConverter(folder).convert(scratch, force=True)
    seq2seq = settings["seq2seq"]
    load = ctranslate2.Translator if seq2seq else ctranslate2.Generator
    engine = load(scratch, compute_type="int8" if how.endswith("int8") else "float32", intra_threads=1, inter_threads=1)
    tokens = [tokenizer.convert_ids_to_tokens(ids) for ids in prompts]

    def run() -> list[list[int]]:
        options: dict[str, Any] = {"beam_size": 1, "batch_type": "tokens", "max_batch_size": 4096}
        if seq2seq:
            done = engine.translate_batch(tokens, max_decoding_length=longest, min_decoding_length=shortest, **options)
            return [tokenizer.convert_tokens_to_ids(one.hypotheses[0]) for one in done]
        options |= {
            "max_length": longest,
            "min_length": shortest,
            "end_token": [eos],
            "include_prompt_in_result": False,
        }
        return [one.sequences_ids[0] for one in engine.generate_batch(tokens, **options)]

    return run


if __name__ == "__main__":
    main()
