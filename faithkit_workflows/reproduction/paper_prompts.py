"""Finds the prompts of the papers, which are not part of the project, in a user's folder: one folder for each corpus.

    prompts/halludial/verdict.txt    prompts/ragtruth/spans.qa.txt    prompts/diahalu/verdict.examples.jsonl

A step asks with its corpus's files if all that it needs are there, and otherwise with our prompts.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from faithkit.errors import UserError, choice_hint
from faithkit.inference.prompts import SHOTS_SUFFIX, SUFFIX, SYSTEM_FILE
from faithkit_workflows.sweep.launching import quote_override
from judge.options import ASKS

OURS = "our prompt"
RATES, COMPARATIVE = "hallucination_rates", "halludial_comparative"
CORPORA = {RATES: "halludial", COMPARATIVE: "halludial"}  # of benchmarks with another name
FOLDERS = ("halludial", "halueval", "ragtruth", "diahalu")
SAMPLED = {"engine": ("reply",), "rephrased": ("rephrase",), "others": ()}  # by selfcheck.samples
EXAMINER = ("examiner_questions", "examiner_answers", "examiner_decision")
NUMBER = "judge.examples="


def needed_prompts(arguments: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Returns the folder and the names of the prompts that a step asks with; no names if it asks no language model."""
    given = dict(argument.split("=", 1) for argument in arguments)
    benchmark = given.get("benchmark", "")
    folder = CORPORA.get(benchmark, benchmark)
    if benchmark == RATES:
        return folder, ("reply",)
    if "engine.model" not in given:  # a trained judge has the prompt of its training
        return folder, ()
    if benchmark == COMPARATIVE:
        return folder, ("comparative",)
    if measure := given.get("selfcheck.measure"):
        support = ("support",) if measure == "prompt" else ()
        return folder, (*SAMPLED[given.get("selfcheck.samples", "engine")], *support)
    if "examiner.turns" in given:
        return folder, EXAMINER
    return folder, (given.get("judge.ask", "verdict"),)


def find_prompts(arguments: Sequence[str], prompts: Path | None) -> list[Path]:
    """Finds the files of a step's prompts; empty if one is missing, or if the step needs none."""
    folder, names = needed_prompts(arguments)
    if prompts is None or not names or not (prompts / folder).is_dir():
        return []
    files = {name: sorted((prompts / folder).glob(f"{name}.*")) for name in names}
    if any(not [file for file in found if file.suffix == SUFFIX] for found in files.values()):
        return []
    system = prompts / folder / SYSTEM_FILE
    return [*(file for found in files.values() for file in found), *([system] if system.is_file() else [])]


def with_prompts(arguments: Sequence[str], prompts: Path | None) -> list[str]:
    """Adds the folder of the prompts to the arguments of a step, if it has all that the step needs.

    A number of examples is left out if their file is not there: then the prompt has its examples in its text.
    """
    files = find_prompts(arguments, prompts)
    if not files:
        return list(arguments)
    has_examples = any(file.name.endswith(SHOTS_SUFFIX) for file in files)
    key = "benchmark.prompts" if f"benchmark={RATES}" in arguments else "judge.prompts"
    replaced = (f"{key}=",) if has_examples else (f"{key}=", NUMBER)
    kept = [one for one in arguments if not one.startswith(replaced)]
    return [*kept, f"{key}={quote_override(str(files[0].parent))}"]


def describe_prompts(arguments: Sequence[str], prompts: Path | None) -> str:
    """Names the prompts of a step: ours, or the user's files with their fingerprints; empty if it has none."""
    if not needed_prompts(arguments)[1]:
        return ""
    files = find_prompts(arguments, prompts)
    prints = {file: hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in files}
    return ", ".join(f"{file.parent.name}/{file.name} {print_}" for file, print_ in prints.items()) or OURS


def check_prompts(key: str, path: str) -> Iterator[UserError]:
    """Yields problems for a folder of prompts: unknown or missing folders, and files that cannot be used."""
    from judge.prompt import read_prompts

    root = Path(path).expanduser()
    folders = [one.name for one in root.iterdir() if one.is_dir()] if root.is_dir() else []
    for unknown in [name for name in folders if name not in FOLDERS]:
        yield UserError(f"{key}: no paper has prompts in {unknown}", place=path, hint=choice_hint(unknown, FOLDERS))
    if not folders:
        hint = f"make folders such as {FOLDERS[0]}/ with the prompts' files (docs/reproducing.md)"
        yield UserError(f"{key}: here is no folder of a paper's prompts", place=path, hint=hint)
    for folder in [name for name in FOLDERS if name in folders]:
        for ask in [name for name in ASKS if list((root / folder).glob(f"{name}.*"))]:
            try:
                read_prompts(ask, str(root / folder))
            except UserError as error:
                yield error
