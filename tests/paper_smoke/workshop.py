"""Keeps the folders of a smoke test: weights of the true architectures, rows of the recipes' lengths, runs, results."""

import shutil
from pathlib import Path
from typing import Any

from data_modules.datasets.halludial import HalluDial
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.files.jsonl import write_jsonl
from tests.paper_smoke.architectures import VERSION, make_weights, num_parameters
from tests.paper_smoke.recipes import Recipe
from tests.paper_smoke.rows import Lengths, write_answers, write_judged, write_turns

NLI = "roberta-large-mnli"
NUM_TESTED = 4
PROMPT = 300  # tokens of a judge's instruction and of its reply, or a few less


class Workshop:
    """The folders of a smoke test: weights and rows, which stay, and the run of a recipe, which goes.

    Args:
        root: Has all of them.
        small: Models of few dimensions in the place of the true ones, for tests of this program.
    """

    def __init__(self, root: Path, *, small: bool = False):
        self.root, self.small = root.resolve(), small

    @property
    def results(self) -> Path:
        return self.root / "results"

    def weights(self, name: str) -> Path:
        return self.root / f"weights-{VERSION}" / name

    def run_folder(self, recipe: Recipe) -> Path:
        return self.root / "runs" / recipe.name

    def rows(self, recipe: Recipe) -> Path:
        return self.root / "rows" / recipe.name

    def prepare(self, recipe: Recipe) -> int:
        """Makes a recipe's weights and writes its rows, lengthened by their tokenizer; returns its parameters."""
        for name in needed_weights(recipe):
            make_weights(self.weights(name), small=self.small)
        self._write_rows(recipe)
        return num_parameters(recipe.weights)

    def tokenizer(self, recipe: Recipe) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.weights(recipe.weights))

    def _write_rows(self, recipe: Recipe) -> Path:
        folder = self.rows(recipe)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tokenizer = self.tokenizer(recipe)

        def count(text: str) -> int:
            return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

        if recipe.task in ("tagger", "span_judge"):
            num_rows = {"train": 2 * recipe.batch_size + 4, "test": NUM_TESTED}
            room = recipe.max_length - (PROMPT if recipe.task == "span_judge" else 0)
            return write_answers(folder, num_rows, count, room)
        if recipe.task == "judge":
            num_rows = {"train": 8 * recipe.batch_size, "test": 2 * NUM_TESTED}
            write_judged(folder, num_rows, count, recipe.max_length)
            tested = read_examples(HalluDial(path=str(folder)), "test", ReadReport())
            said = ({"id": row.id, "label": row.label, "text": row.target} for row in tested)
            write_jsonl(judgements_of(folder), said)
            return folder
        num_rows = {"train": 4 * recipe.batch_size, "validation": 2 * NUM_TESTED, "test": 2 * NUM_TESTED}
        if recipe.task == "critic":
            return write_turns(folder, num_rows, count, Lengths(knowledge=recipe.max_length))
        # Knowledge and response are never cut: a part of the room each, and more history than the rest holds.
        lengths = Lengths(knowledge=100, history=recipe.max_length, response=70)
        return write_turns(folder, num_rows, count, lengths)


def judgements_of(rows: Path) -> Path:
    """Names the file of the rows' own judgements, as a judge's predictions."""
    return rows.with_name(f"{rows.name}-judgements.jsonl")


def needed_weights(recipe: Recipe) -> list[str]:
    """The weights that the commands of a recipe name."""
    names = [recipe.weights]
    if recipe.metric_models:
        names += ["roberta-large", "question-generation", "question-answering"]
    if recipe.metric_models or any(argument.startswith("control=") for argument in recipe.arguments):
        names.append(NLI)
    return names
