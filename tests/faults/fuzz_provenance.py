"""Damages the files that say where predictions are from, and what a model has seen."""

import json
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from faithkit.provenance.predictions_origin import origin_path, write_origin
from faithkit.provenance.row_keys import row_keys
from faithkit.provenance.seen_rows import CHOSEN, SEEN_ROWS_FILE, TRAINED, SeenRows, find_leaks, read_seen
from faithkit.weights.used_model import UsedModel
from faithkit_workflows.answering.prediction_files import read_provenance
from tests.faults.campaign import Campaign
from tests.faults.fuzz_model_folder import damage_bytes, damage_value
from tests.faults.fuzz_predictions import labelled, lines


@cache
def seen_file() -> bytes:
    """The file of a model that was trained on some answers and chosen on others."""
    with TemporaryDirectory() as folder:
        uses = {TRAINED: [row_keys(labelled()[:2])], CHOSEN: [row_keys(labelled()[2:])]}
        SeenRows.of(uses, untold=["some/model"]).write(Path(folder))
        return (Path(folder) / SEEN_ROWS_FILE).read_bytes()


def attempt_seen(rng: random.Random, folder: Path) -> None:
    """The rows that a model has seen, of a folder without hashes."""
    (folder / SEEN_ROWS_FILE).write_bytes(seen_file())
    damage_bytes(folder / SEEN_ROWS_FILE, rng)
    seen = read_seen(folder)
    if seen is not None:
        json.dumps(find_leaks(labelled(), seen | SeenRows({})).to_dict())


def attempt_origin(rng: random.Random, folder: Path) -> None:
    """The file beside given predictions: they are scored all the same, and what is said of them is text."""
    predictions = folder / "predictions.jsonl"
    predictions.write_bytes(lines(labelled()))
    model = UsedModel(role="checkpoint", path="runs/a", kind="tagger", weights="0f" * 16, threshold="0.5")
    write_origin(predictions, "ragtruth", labelled(), [model])
    rng.choice((damage_bytes, damage_value))(origin_path(predictions), rng)
    origin = read_provenance(str(predictions), "ragtruth", labelled(), checkpoint=None)
    ("\n".join(origin.lines) + json.dumps(origin.to_dict(), allow_nan=False)).encode()


CAMPAIGNS = [
    Campaign("rows that a model has seen", attempt_seen, share=0.5),
    Campaign("origin of predictions", attempt_origin, share=0.5),
]
