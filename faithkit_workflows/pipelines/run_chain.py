"""Runs the chain of a pipeline, or shows in a dry run what it would ask; reports what was written.

Also the step in which a detector judges rows.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from construction.ask import Ask
from construction.chain import FOLDER, Chain
from construction.steps import (
    CHUNK_SIZE,
    KEY,
    NO_VERDICT,
    Division,
    Each,
    Row,
    RowFailed,
    Step,
    Work,
    batched,
    join_branches,
    read_row,
    usable_rows,
)
from faithkit.detector import Detector
from faithkit.errors import UserError
from faithkit.files.atomic import atomic_folder, write_text
from faithkit.files.run_folder import RunFolder
from faithkit.inference.text import OPENAI, TextEngine, seed_of
from faithkit.inference.text_engines import EngineOptions, build_text_engine
from faithkit.packages import environment
from faithkit.pages.page_tables import escape_terminal, new_number_table, print_tables
from faithkit.records import UNPARSED, Example, Prediction, Turn
from faithkit.words import unicode_words

PROMPTS = "prompts"  # in the run's folder: each prompt that was used, by its hash
MAX_TEXTS = 50_000
MAX_PAIRS = 20  # in a report
RUN_LENGTH = 3  # words
TRAIN, PAIRS = "train", "pairs"
OUTPUT = "benchmark"  # in the run's folder: the official layout
NUM_SHOWN, NUM_MEASURED = 3, 200  # rows whose prompts are printed, and whose lengths are averaged in a dry run
log = logging.getLogger("faithkit")


def build_model(options: EngineOptions) -> TextEngine:
    """Loads a model, which may be the run of a judge."""
    if options.name != OPENAI and options.model:
        from judge.judge import stored_judge

        options = replace(options, model=stored_judge(options.model)[0])
    return build_text_engine(options)


def writers_of(config: Mapping[str, Any]) -> dict[str, EngineOptions]:
    """Gives the models that write, by branch name: each has the settings of the block `engine` and those of `models`.

    Raises:
        UserError: Two models have one name.
    """
    default, models = EngineOptions(**config["engine"]), config["models"] or [config["engine"]["model"]]
    if isinstance(models, Mapping):
        named = list(models.items())
    else:
        named = [(str(model).rstrip("/").rpartition("/")[2], {"model": model}) for model in models]
    known, writers = {one.name for one in fields(EngineOptions)}, dict[str, EngineOptions]()
    for given, block in named:
        name = branch_name(given)
        if name in writers:
            hint = f"name them: 'models={{one: {{model: {block.get('model', default.model)}}}, other: ...}}'"
            raise UserError(f"two models have the name {name}", place="models", hint=hint)
        writers[name] = replace(default, **{k: v for k, v in block.items() if k in known and v is not None})
    return writers


def branch_name(text: str) -> str:
    """Makes a name that a file can have."""
    return re.sub("[^A-Za-z0-9._-]+", "-", text).strip(".-") or "model"


def run_chain(run: RunFolder, config: Mapping[str, Any], steps: Sequence[Step]) -> Chain | None:
    """Makes the rows of all steps; returns the chain, or None after a dry run."""
    if config["dry_run"]:
        show_dry_run(steps)
        return None
    chain = Chain(run.path, config["pipeline"]["name"], steps, environment())
    for step in steps:
        for prompt in step.work.prompts.values() if isinstance(step.work, Ask) else ():
            path = run.path / PROMPTS / f"{prompt.name}-{prompt.fingerprint}.txt"
            write_text(path, f"{prompt.system}\n\n{prompt.text}" if prompt.system else prompt.text)
    chain.run(retry_failed=config["retry_failed"])
    return chain


def show_dry_run(steps: Sequence[Step]) -> None:
    """Prints three filled prompts of each step that asks a model, and estimates of tokens and cost."""
    rows: dict[str, list[Row]] = {}
    counts: dict[str, int] = {}
    columns = ("requests", "tokens read, about", "written, at most", "dollars, at most")
    table = new_number_table("what it would ask", "step", columns, show_edge=True)
    for step in steps:
        if step.read is not None:
            all_rows = iter(step.read())
            rows[step.name] = list(islice(all_rows, NUM_MEASURED))
            counts[step.name] = len(rows[step.name]) + sum(1 for _ in all_rows)
            continue
        names = {one.branch or one.name: one.name for one in steps if one.name in step.after}
        joined = join_branches({branch: rows[name] for branch, name in names.items()})
        inputs = rows[step.after[0]] if len(step.after) == 1 else list(joined)
        counts[step.name] = count = sum(counts[name] for name in step.after)
        if not isinstance(step.work, Ask):
            rows[step.name] = list(step.work.run(inputs)) if isinstance(step.work, Each) else inputs
            continue
        ask, usable = step.work, list(usable_rows(inputs))
        for number, row in enumerate(usable[:NUM_SHOWN], start=1):
            print(f"--- {step.name}, prompt {number} of {count:,}: {row[KEY]}")
            print(*(f"[{message.role}]\n{message.content}" for message in ask.messages(row)), sep="\n", end="\n\n")
        lengths = [sum(len(message.content) for message in ask.messages(row)) for row in usable]
        num_read = round(sum(lengths) / 4 / max(1, len(lengths)) * count)  # roughly, for English text
        num_written = count * ask.decoding.max_new_tokens
        cost = "-"
        if ask.options.price is not None:
            cost = f"{(num_read * ask.options.price[0] + num_written * ask.options.price[1]) / 1_000_000:,.2f}"
        else:
            table.caption = "engine.price=[READ,WRITTEN], for a million tokens each, gives the dollars"
        table.add_row(step.name, f"{count:,}", f"{num_read:,}", f"{num_written:,}", cost)
        rows[step.name] = [ask.pretend(row) for row in usable]
    print_tables(table)


def build_benchmark(
    run: RunFolder,
    config: Mapping[str, Any],
    steps: Sequence[Step],
    rows: Callable[[Chain], Iterator[Row]],
    write: Callable[[Path, Chain, Division], Mapping[str, int]],
    *,
    group: str = "dialogue",
    fields: Sequence[str] = ("knowledge", "response"),
) -> None:
    """Runs a chain, writes its rows, and reports counts and leaks, which the manifest stores; or shows a dry run.

    Args:
        rows: Reads the rows to write.
        write: Writes them into a folder, and counts them by split.
        group: The field that splits keep together.
        fields: Texts that should not occur in two splits.
    """
    chain = run_chain(run, config, steps)
    if chain is None:
        return
    division = Division({"test": config["pipeline"]["test_fraction"]}, config["seed"])
    with atomic_folder(run.path / OUTPUT, replace=True) as folder:
        counts = write(folder, chain, division)
    kinds: Counter[str] = Counter()
    for row in rows(chain):
        kinds[f"model {row.get('model') or 'none'}"] += 1
        kinds[f"label {row.get('label')}"] += "label" in row
        kinds["verdict weighed, not written"] += "verdict_weighed" in row
        kinds[f"quality {row.get('quality')}"] += "quality" in row
        kinds["quoted parts that are not in the response"] += row.get("unlocated", 0)
    failures: Counter[str] = Counter()
    for step in chain.manifest.steps.values():
        failures.update({why: number for why, number in step.failures.items() if why.startswith(f"{step.name}: ")})
    shared = {
        field: find_shared_texts(
            lambda field=field: (  # type: ignore[misc]
                TextInSplit(division.split_of(row[group]), row[group], row[field]) for row in rows(chain)
            ),
            config["pipeline"]["near_duplicates"],
        )
        for field in fields
    }
    kinds = +kinds
    lines = {f"split {split}": number for split, number in counts.items()} | dict(sorted(kinds.items()))
    lines |= {f"failed, {name}": number for name, number in sorted(failures.items())}
    lines |= {
        f"{field} {name}": number for field, one in shared.items() for name, number in one.items() if name != PAIRS
    }
    print_counts("what was built", "rows", lines)
    result = {"rows": dict(counts), "kinds": dict(kinds), "failures": dict(failures), "shared": shared}
    chain.manifest.result = result
    chain.manifest.write()
    if sum(counts.values()):
        log.info("written: %s", run.path / OUTPUT)
    else:
        most = max(failures, key=lambda why: failures[why], default="no input")
        log.warning("nothing was written: no row could be used (most failed by %s); see %s", most, run.path / FOLDER)


@dataclass(frozen=True, slots=True)
class TextInSplit:
    """A text of a group (a dialogue, a source) in a split."""

    split: str
    group: str
    text: str


def find_shared_texts(texts: Callable[[], Iterator[TextInSplit]], near: float | None) -> dict[str, Any]:
    """Counts the held-out texts that the training split also contains, exactly or nearly.

    Near duplicates have a given share of their runs of three words in common (Jaccard). Up to `MAX_TEXTS` distinct
    texts of the held-out splits are indexed, and the training split is streamed past them, so memory does not grow with
    it.

    Returns:
        Named counts, and `pairs`: the closest near duplicates with their groups, their share and their texts.

    Args:
        texts: Reads all texts; it is called twice.
        near: The share that near duplicates have in common; None finds equal texts only.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    held_out: dict[int, TextInSplit] = {}
    for one in texts():
        if one.split != TRAIN and len(held_out) < MAX_TEXTS:
            held_out.setdefault(_key(one.text), one)
    if near is not None and held_out:  # a sparse matrix of the held-out texts and their runs of words
        names, options = list(held_out), {"binary": True, "norm": None, "alternate_sign": False}
        vectorizer = HashingVectorizer(analyzer=_runs, n_features=2**22, **options)  # two runs rarely have one
        matrix = vectorizer.transform([one.text for one in held_out.values()])
        sizes = matrix.getnnz(axis=1)
    equal: set[int] = set()
    close: dict[int, dict[str, Any]] = {}
    for chunk in batched((one for one in texts() if one.split == TRAIN), CHUNK_SIZE):
        keys = [_key(one.text) for one in chunk]
        equal.update(held_out.keys() & keys)
        others = [one for one, key in zip(chunk, keys, strict=True) if key not in held_out]
        if near is None or not held_out or not others:
            continue
        rows = vectorizer.transform([one.text for one in others])
        shared = (rows @ matrix.T).tocoo()
        shares = shared.data / (rows.getnnz(axis=1)[shared.row] + sizes[shared.col] - shared.data)
        for place in np.flatnonzero(shares >= near).tolist():
            other, share = names[shared.col[place]], round(float(shares[place]), 3)
            if share > close.get(other, {"share": 0.0})["share"]:
                one = others[shared.row[place]]
                pair = {"share": share, "train": one.group, "held_out": held_out[other].group}
                close[other] = {**pair, "texts": [one.text[:200], held_out[other].text[:200]]}
    found: dict[str, Any] = {"different texts held out": len(held_out), "of them in train, word for word": len(equal)}
    pairs = sorted((close[key] for key in close.keys() - equal), key=lambda pair: -pair["share"])
    if near is not None:
        found[f"of them in train nearly, a share of {near}"] = len(pairs)
    return {**found, PAIRS: pairs[:MAX_PAIRS]}


def _key(text: str) -> int:
    return seed_of(" ".join(unicode_words(text)), size=8)


def _runs(text: str) -> set[str]:
    words = unicode_words(text)
    return {" ".join(words[i : i + RUN_LENGTH]) for i in range(max(1, len(words) - RUN_LENGTH + 1))}


def print_counts(title: str, head: str, counts: Mapping[str, float]) -> None:
    """Prints a table of counts."""
    table = new_number_table(title, head, ["number"], show_edge=True)
    for name, number in counts.items():
        table.add_row(Text(escape_terminal(name)), f"{number:,}")
    print_tables(table)


@dataclass(kw_only=True)
class Detect(Work):
    """Judges a text of each row by its knowledge and history, as the work of a step.

    Args:
        path: A run, a folder or a hub name, as for `detector=` of generate.py.
        text: The field to judge.
        read: Makes a row from a row and its prediction.
        labels: The meaning of the classes of an external critic.
    """

    path: str
    text: str
    read: Callable[[Row, Prediction], Row]
    precision: str = "auto"
    labels: Mapping[int | str, str] | None = None
    _detector: Detector | None = field(default=None, repr=False)

    def settings(self) -> dict[str, Any]:
        """Collects what the verdicts depend on: the weights, not their place."""
        from faithkit_workflows.detectors.loading import describe_detector

        described = [[one.kind, one.weights or one.path, one.threshold] for one in describe_detector(self.path)]
        labels = {"labels": {str(name): label for name, label in self.labels.items()}} if self.labels else {}
        return {"detector": described, **labels}

    def open(self) -> str:
        """Loads the detector; returns its weights, or the file that describes it."""
        from faithkit.weights.resolve import hash_weights
        from faithkit_workflows.detectors.loading import load_detector
        from faithkit_workflows.settings.engines import is_detector_file

        self._detector = load_detector(self.path, precision=self.precision, batch_tokens=None, labels=self.labels)
        weights = None if is_detector_file(self.path) else hash_weights(self.path)
        return f"detector {weights or self.path}"

    def run(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yields the judged rows."""
        assert self._detector is not None, "it is opened first"
        examples = [example_of(row, str(row[self.text])) for row in rows]
        for row, prediction in zip(rows, self._detector.predict_examples(examples), strict=True):
            yield read_row(row, self.read, prediction)

    def close(self) -> str:
        """Frees the detector."""
        self._detector = None
        return ""


def example_of(row: Mapping[str, Any], response: str) -> Example:
    """Makes the example that a detector judges."""
    return Example(
        id=row[KEY],
        source="construction",
        split="construction",
        group=row["dialogue"],
        knowledge=row["knowledge"],
        history=tuple(Turn(speaker=speaker, text=text) for speaker, text in row["history"]),
        response=response,
    )


def require_verdict(prediction: Prediction) -> None:
    """Fails the row on which a detector gave no verdict."""
    if prediction.label in (None, UNPARSED):
        raise RowFailed(NO_VERDICT, prediction.text)
