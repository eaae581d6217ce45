"""Runs the original of a known detector; run by the Python of its environment, so it imports nothing of ours.

PYTHON known_worker.py --name NAME --root FOLDER --rows ROWS [--code FOLDER]

`--root` has the models as `<hub name>/`. A row is a JSON line {"passages", "question", "response"}. `--code` has the
checkouts that are not packages: MiniCheck, FactCG, AlignScore and hhem (modeling_hhem_v2.py and what it imports). Each
line of the input is `START STOP` and is answered by a line of JSON: P(supported) of these rows, and the CPU-seconds.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Score = Callable[[list[str], list[str]], list[float]]


def main() -> None:
    """Loads the original, then works line by line."""
    parser = argparse.ArgumentParser()
    for name in ("name", "root", "rows", "code", "model", "language"):
        parser.add_argument(f"--{name}", default="")
    options = parser.parse_args()
    rows = [json.loads(line) for line in Path(options.rows).read_text(encoding="utf-8").splitlines()]
    answers, sys.stdout = sys.stdout, sys.stderr  # what the libraries print goes to stderr
    import torch

    torch.set_num_threads(1)
    code = Path(options.code).resolve()
    sys.path[:0] = [str(code / part) for part in ("MiniCheck", "FactCG", "AlignScore/src", "hhem")]
    os.chdir(options.root)  # the originals name models of the hub, which are folders here
    score = load_rows(options.name, options.model, options.language)
    for line in sys.stdin:
        start, stop = map(int, line.split())
        begin = time.process_time()
        found = score(rows[start:stop])
        seconds = time.process_time() - begin
        print(json.dumps({"supported": found, "seconds": seconds}), file=answers, flush=True)


def load_rows(name: str, model: str, language: str) -> Callable[[list[Row]], list[float]]:
    """Loads an original by its name in faithkit, as a function of rows; LettuceDetect's by model and language."""
    if "lettuce" in name:
        from lettucedetect import HallucinationDetector

        detector = HallucinationDetector(method="transformer", model_path=model, lang=language or "en")

        def predict(row: Row) -> list[dict[str, Any]]:
            passages, response, question = row["passages"], row["response"], row["question"]
            if "-v2-" not in name:
                return list(detector.predict(passages, response, question, output_format="tokens"))
            asked = f"User request: {question}\n\n" if question else ""  # as its data and its evaluation have it
            return list(detector.predict_prompt(asked + "\n\n".join(passages), response, output_format="tokens"))

        # A response is as supported as its least supported token; the last one is the end token.
        return lambda rows: [1 - max(token["prob"] for token in predict(row)[:-1]) for row in rows]
    score = load(name)
    return lambda rows: score(["\n".join(row["passages"]) for row in rows], [row["response"] for row in rows])


def load(name: str) -> Score:
    """Loads an original that reads one document and no question."""
    if name.startswith("minicheck"):
        from minicheck.minicheck import MiniCheck

        minicheck = MiniCheck(model_name=name.removeprefix("minicheck-"))
        return lambda documents, responses: [float(one) for one in minicheck.score(documents, responses)[1]]
    if name == "factcg-deberta":
        from factcg import FactCGScore

        factcg = FactCGScore(batch_size=16, verbose=False)
        return lambda documents, responses: list(factcg.score(documents, responses))
    if name == "nli-deberta-v3-base":
        from sentence_transformers import CrossEncoder

        encoder: Any = CrossEncoder("cross-encoder/nli-deberta-v3-base", device="cpu")

        def classify(documents: list[str], responses: list[str]) -> list[float]:
            pairs = list(zip(documents, responses, strict=True))
            return [float(row[1]) for row in encoder.predict(pairs, apply_softmax=True, show_progress_bar=False)]

        return classify
    if name == "roberta-large-mnli":
        from transformers import pipeline

        pipe: Any = pipeline("text-classification", model="FacebookAI/roberta-large-mnli", device="cpu")

        def run_pipeline(documents: list[str], responses: list[str]) -> list[float]:
            pairs = [{"text": one, "text_pair": other} for one, other in zip(documents, responses, strict=True)]
            found = pipe(pairs, top_k=None, truncation=True, batch_size=8)
            return [next(one["score"] for one in row if one["label"] == "ENTAILMENT") for row in found]

        return run_pipeline
    return {"alignscore-large": load_alignscore, "hhem-2.1-open": load_hhem}[name]()


def load_alignscore() -> Score:
    """Loads AlignScore; its way of reading a checkpoint needs an old Lightning, and is replaced."""
    import torch

    for package, name, value in (
        ("spacy", "load", lambda name: None),  # for modes that are not used
        ("transformers", "AdamW", torch.optim.AdamW),  # for training, and removed from transformers
    ):
        setattr(import_module(package), name, value)
    from alignscore import inference

    checker = inference.Inferencer(None, model="FacebookAI/roberta-large", device="cpu", verbose=False)
    stored = torch.load("yzha/AlignScore/AlignScore-large.ckpt", weights_only=True)
    checker.model.load_state_dict(stored["state_dict"], strict=False)
    checker.nlg_eval_mode = "nli_sp"
    return lambda documents, responses: [float(one) for one in checker.nlg_eval(documents, responses)[1]]


def load_hhem() -> Score:
    """Loads HHEM with the code of its repository."""
    import modeling_hhem_v2 as original
    from safetensors.torch import load_file

    model = original.HHEMv2ForSequenceClassification(original.HHEMv2Config())
    missing = model.load_state_dict(load_file("vectara/hallucination_evaluation_model/model.safetensors"), strict=False)
    assert {name.rpartition(".")[0] for name in missing.missing_keys} <= {"t5.transformer.encoder.embed_tokens"}
    return lambda documents, responses: [
        float(one) for one in model.predict(list(zip(documents, responses, strict=True)))
    ]


if __name__ == "__main__":
    main()
