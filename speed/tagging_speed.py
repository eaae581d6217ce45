"""Compares tagging lists of answers with LettuceDetect.

Both load the same random ModernBERT (6 layers of 256, window 128, each third layer global; `--layers 22 --hidden-size
768` are ModernBERT-base's) and take the same answers in turns: those of RAGTruth if `--ragtruth` names the folder of
its files, else made ones. ATEN_CPU_CAPABILITY=avx2 and ONEDNN_MAX_CPU_ISA=AVX2 measure both sides without AVX-512.

Needs: LettuceDetect in another environment, named by FAITHKIT_LETTUCE_PYTHON (peers/README.md); skipped without it.

FAITHKIT_LETTUCE_PYTHON=~/lettuce/bin/python python -m speed.tagging_speed --ragtruth FOLDER
"""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from critic import Tagger
from critic.tagger.calibration_features import widen_to_words
from critic.tagger.settings import Settings, tagger_labels
from critic.tagger.span_calibration import SpanCalibration
from critic.weights import load_classifier
from data_modules.datasets.ragtruth import RagTruth
from data_modules.encoding.tokens import load_tokenizer
from data_modules.reading.rows import ReadReport
from faithkit.fast import computes_in_bf16
from faithkit.files.model_folder import write_folder
from faithkit.records import Example
from speed.gpu import gpu_name
from speed.lettuce import (
    LONGEST,
    PLACES,
    UNITS,
    LettuceParser,
    Work,
    lettuce_worker,
    next_rows,
    write_random_tagger,
    write_rows,
)
from speed.measure import alternate, clock_of, rates, table, write_results
from speed.samples import TAGGED, make_tagged, write_modernbert


def main() -> None:
    """Writes weights and rows once, then compares."""
    parser = LettuceParser(__doc__, rounds=4, examples=96)
    parser.add_argument("--ragtruth", help="the folder of response.jsonl and source_info.jsonl")
    parser.add_argument("--machine", help="ends the section's title: results of several machines stay side by side")
    options = parser.parse()
    device, capability = options.device, torch.backends.cpu.get_cpu_capability()
    torch.set_num_threads(1)
    answers: list[Example] = []
    if options.ragtruth:  # answers of one source follow each other
        source = RagTruth(path=options.ragtruth, official_split=False, quality="all")
        answers = [example for example, _ in source.read_split("all", ReadReport())]
    with tempfile.TemporaryDirectory() as name:
        folder, size = Path(name), {"hidden_size": options.hidden_size, "num_layers": options.layers}
        weights = write_modernbert(folder / "encoder", examples=answers, **size)
        count = options.examples * (options.rounds + 1)
        examples = answers[:count] or make_tagged(load_tokenizer(weights), count)
        rows = write_rows(examples, folder / "rows.jsonl")
        theirs = write_random_tagger(weights, examples, folder / "peer")
        # The same weights as a folder of ours, with LettuceDetect's threshold of one half.
        labels, ours = tagger_labels(False), folder / "ours"
        settings = Settings(labels=labels, max_length=LONGEST, calibration=SpanCalibration(), origin={})
        model = load_classifier(theirs, labels, of_tokens=True)
        write_folder(ours, model, load_tokenizer(theirs), settings.to_sidecar())
        precisions = ["32-true", *(["bf16"] * computes_in_bf16(device)), *(["int8"] * (device == "cpu"))]
        taggers = {one: Tagger.load(str(ours), device=device, precision=one) for one in precisions}
        with lettuce_worker("--model", theirs, "--rows", str(rows), device=device) as ask:
            sides: dict[str, Work] = {"LettuceDetect, predict_prompt_batch": partial(ask, "predict")}
            sides |= {f"ours, {one}": partial(predict, tagger, examples) for one, tagger in taggers.items()}
            taken = alternate(next_rows(sides, options.examples), options.rounds, warm_up=True)
            found = ask("spans", 0, options.examples)
    shared = [f"{compare_spans(found, taggers[one], examples[: options.examples])} in {one}" for one in precisions]
    about = (
        f"{options.examples} examples a round, {'answers of RAGTruth in their order' if answers else TAGGED}; "
        f"a random ModernBERT, {options.layers} layers of {options.hidden_size}; {options.versions}; {capability}. "
        f"Characters that both mark, without white space, of those that either marks: {', '.join(shared)}."
    )
    title = f"Tagger: predicting{PLACES[device]}, {options.layers} layers of {options.hidden_size}"
    title += ", RAGTruth" * bool(answers) + ", without AVX-512" * (capability == "AVX2")
    title += f", {options.machine}" if options.machine else ""
    lines = table(["side", UNITS[device], "against LettuceDetect"], rates(taken, options.examples, digits=2))
    write_results(title, about, lines, quick=options.quick, device=gpu_name(device))


def predict(tagger: Tagger, examples: Sequence[Example], start: int, stop: int) -> float:
    """Tags some examples; returns the seconds."""
    read_clock, part = clock_of(tagger.device.type), examples[start:stop]
    begin = read_clock()
    tagger.predict([one.knowledge for one in part], [one.response for one in part])
    return read_clock() - begin


def compare_spans(found: list[list[tuple[int, int]]], tagger: Tagger, examples: Sequence[Example]) -> str:
    """Counts the characters that both sides mark, of those that either marks; their spans extend to words, as ours."""
    texts = [one.response for one in examples]
    owner = np.repeat(np.arange(len(found)), [len(spans) for spans in found])
    start, end = np.array([span for spans in found for span in spans], np.int64).reshape(-1, 2).T
    theirs = zip(owner.tolist(), *widen_to_words(start, end, owner, texts), strict=True)
    tagged = tagger.predict([one.knowledge for one in examples], texts)
    ours = ((row, span.start, span.end) for row, one in enumerate(tagged) for span in one.spans)
    marked = [
        {(row, i) for row, begin, stop in side for i in range(begin, stop) if not texts[row][i].isspace()}
        for side in (ours, theirs)
    ]
    return f"{len(marked[0] & marked[1]):,} of {len(marked[0] | marked[1]):,}"


if __name__ == "__main__":
    main()
