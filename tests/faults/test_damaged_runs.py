"""Damaged files of a run and of the cache are refused, made again, or read as what was written."""

import csv
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.data_module import load_encoded, read_rows
from data_modules.datasets.nli import Snli
from data_modules.embedded.layouts import WRITERS
from data_modules.encoding.encoder import Ragged
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from faithkit.files.open_run import apply_overrides, resolve_config
from faithkit.files.run_folder import RunFolder, read_config, write_config
from faithkit.inference.text import Reply
from faithkit.inference.text_engines import ReplyStore
from faithkit.provenance.row_keys import row_keys
from faithkit.provenance.used_model import (
    CHOSEN,
    SEEN_ROWS_FILE,
    TRAINED,
    SeenRows,
    UsedModel,
    find_leaks,
    read_seen,
    write_origin,
)
from faithkit.targets import DATASETS, TARGETS, check_names
from faithkit.training.checkpoint_io import write_checkpoint
from faithkit.training.checkpoints import find_resume_point, read_checkpoint
from faithkit.training.loggers import CsvLogger
from faithkit_workflows.answering.write_answers import read_provenance
from tests.data_modules.examples import encoded_content
from tests.faults.checkpoint_files import PLAIN, checkpoint_bytes, example_checkpoint, is_same
from tests.faults.processes import FORK
from tests.faults.strategies import damaged_bytes, damaged_json, damaged_value, new_folder, share, used_or_explained
from tests.faults.test_damaged_inputs import labelled, prediction_lines
from tests.running import compose, temporary_folder
from tests.tiny import write_bert


@given(damaged_bytes(checkpoint_bytes()))
def test_a_checkpoint_with_damaged_bytes(content: bytes) -> None:
    with new_folder() as folder, used_or_explained():
        (folder / "file").write_bytes(content)
        assert is_same(read_checkpoint(folder / "file"), example_checkpoint())


@share(3)
@given(damaged_value(PLAIN))
def test_a_checkpoint_with_other_values(values: Any) -> None:
    with new_folder() as folder, used_or_explained():
        run = RunFolder(folder)
        checkpoint = {**values, "state_dict": {}} if isinstance(values, dict) else {"state_dict": values}
        write_checkpoint(run.last, checkpoint)
        find_resume_point(run)


HOSTILE = (
    *({"_target_": "os.system", "command": "true"}, {"_target_": ["torch.load"]}, {"_target_": 5}),
    *([{"_target_": "numpy.load"}], "${oc.env:HOME}", "\\${seed}", "${"),
)


@cache
def composed_config(model: str) -> dict[str, Any]:
    return resolve_config(compose("train", f"model={model}", *(["control=ctrl"] if model == "t5" else [])))


@pytest.mark.parametrize("model", ["critic", "t5"])
@share(10)
@given(st.data())
def test_a_config_read_for_a_resume(model: str, data: st.DataObject) -> None:
    config = composed_config(model)
    with new_folder() as folder, used_or_explained():
        path = folder / "config.yaml"
        if data.draw(st.booleans()):
            write_config(path, config)
            path.write_bytes(data.draw(damaged_bytes(path.read_bytes())))
        else:
            changed = data.draw(damaged_value(config))
            changed = changed if isinstance(changed, dict) else {"a": changed}
            if data.draw(st.booleans()):
                changed[data.draw(st.sampled_from([*changed, "a"]))] = data.draw(st.sampled_from(HOSTILE))
            write_config(path, changed)
            assert repr(read_config(path)) == repr(changed)  # a NaN is unlike itself
        resumed = read_config(path)
        apply_overrides(RunFolder(folder), resumed, composed_config("critic"), ["resume=x"], ())
        check_names(resumed, [])
        check_plain(resumed)


def check_plain(value: Any) -> None:
    if isinstance(value, dict):
        assert value.get("_target_") in (None, *TARGETS, *DATASETS.values())
        for item in value.values():
            check_plain(item)
    elif isinstance(value, list):
        for item in value:
            check_plain(item)
    else:
        assert isinstance(value, str | int | float | bool | None)


HEAD = "epoch,lr-AdamW/pg1,step,train/loss,validation/embedded/f1"
CURVES = "\r\n".join([HEAD, *(f"0,{1 / n},{n},{2 / n},{0.5 if n % 20 else ''}" for n in range(9, 199, 10))])


@share(4)
@given(damaged_bytes(f"{CURVES}\r\n".encode()), st.sampled_from([0, 50, 1000]))
def test_metrics_csv_never_stops_a_resume(content: bytes, first_step: int) -> None:
    with new_folder() as folder:
        (folder / "metrics.csv").write_bytes(content)
        logger = CsvLogger(folder, first_step=first_step)
        logger.log_metrics({"train/loss": 0.5}, 1009)
        logger.log_metrics({"other": 0.25}, 1019)
        with (folder / "metrics.csv").open(newline="", encoding="utf-8") as opened:
            last = list(csv.DictReader(opened))[-2:]
    found = [(row["step"], row["train/loss"], row["other"]) for row in last]
    assert found == [("1009", "0.5", ""), ("1019", "", "0.25")]


@contextmanager
def cache_folder(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAITHKIT_HOME", str(folder))
        yield


@cache
def encoded_corpus() -> tuple[Snli, PairEncoder, Path, tuple[Any, ...]]:
    """Gives a corpus, an encoder, a cache with two entries (train and test), and the contents of the first."""
    root = temporary_folder("faithkit-cache-")
    source = Snli(path=str(WRITERS["snli"](root / "snli", 30)))
    encoder = PairEncoder(tokenizer=load_tokenizer(str(write_bert(root / "bert"))), max_length=64)
    with cache_folder(root / "home"):
        load_encoded(source, "test", encoder)
        return source, encoder, root / "home", encoded_content(load_encoded(source, "train", encoder))


@share(8)
@given(st.data())
def test_a_damaged_cache_entry_gives_the_same_encodings(data: st.DataObject) -> None:
    source, encoder, kept, expected = encoded_corpus()
    with new_folder() as folder:
        shutil.copytree(kept, folder / "home")
        entries = sorted(path for path in (folder / "home" / "encodings").iterdir() if path.is_dir())
        entry = data.draw(st.sampled_from(entries))
        file = data.draw(st.sampled_from(sorted(path for path in entry.iterdir() if path.is_file())))
        match data.draw(st.sampled_from(("missing", "folder", "of another entry", "bytes", "bytes"))):
            case "missing":
                file.unlink()
            case "folder":
                file.unlink()
                file.mkdir()
            case "of another entry":
                shutil.copy(next(other for other in entries if other != entry) / file.name, file)
            case _:
                file.write_bytes(data.draw(damaged_bytes(file.read_bytes())))
        with cache_folder(folder / "home"):
            for _ in range(2):  # the second launch reads what the first one wrote again
                assert encoded_content(load_encoded(source, "train", encoder)) == expected


@share(10)
@given(st.data())
def test_a_cache_file_without_checksum_does_not_end_the_process(data: st.DataObject) -> None:
    """A file that is too large for a checksum may have other values; reading it must not crash."""
    content = next((encoded_corpus()[2] / "encodings").glob("*/rows.arrow")).read_bytes()
    for _ in range(data.draw(st.sampled_from((1, 2, 8)))):
        content = data.draw(damaged_bytes(content))
    with new_folder() as folder:
        (folder / "rows.arrow").write_bytes(content)
        process = FORK.Process(target=read_arrow, args=(folder / "rows.arrow",))
        process.start()
        process.join(60)
        if process.exitcode is None:
            process.kill()
        assert process.exitcode == 0


def read_arrow(path: Path) -> None:
    try:
        columns, _, _, records = read_rows(path)
        for column in columns.values():
            every = np.arange(len(column))
            _ = column.take(every) if isinstance(column, Ragged) else column[every].sum()
        for record in records:
            with suppress(UnicodeDecodeError):
                record.as_py()
    except (ValueError, OSError):
        pass
    except BaseException:
        traceback.print_exc()
        sys.exit(3)


REPLIES_FILE = "replies.sqlite"
# Of several pages each, so that the file has some of every kind.
REPLIES = {bytes([i]) * 32: Reply(id="", texts=(f"reply {i} " * 40,), finished=(True,)) for i in range(100)}


@cache
def reply_folder(is_killed: bool) -> Path:
    """Writes a cache of replies; of a process that was killed, the log of the last writes lies next to it."""
    opened, closed = (Path(tempfile.mkdtemp(dir=temporary_folder("faithkit-replies-"))) for _ in range(2))
    with closing(ReplyStore(closed / REPLIES_FILE)) as store:
        for key, reply in REPLIES.items():
            store.add([(key, reply)])
        shutil.copytree(closed, opened, dirs_exist_ok=True)
    return opened if is_killed else closed


@share(5)
@given(st.data())
def test_a_damaged_cache_of_replies_gives_no_other_reply(data: st.DataObject) -> None:
    with new_folder() as folder, used_or_explained():
        place = Path(shutil.copytree(reply_folder(data.draw(st.booleans())), folder / "replies"))
        victim = data.draw(st.sampled_from(sorted(place.glob(f"{REPLIES_FILE}*"))))
        victim.write_bytes(data.draw(damaged_bytes(victim.read_bytes())))
        with closing(ReplyStore(place / REPLIES_FILE)) as store:
            for _ in range(2):
                found = dict(store.find(list(REPLIES)))
                assert all(reply == REPLIES[key] for key, reply in found.items())
                store.add([(key, reply) for key, reply in REPLIES.items() if key not in found])


@cache
def seen_rows_file() -> bytes:
    with new_folder() as folder:
        uses = {TRAINED: [row_keys(labelled()[:2])], CHOSEN: [row_keys(labelled()[2:])]}
        SeenRows.of(uses, unknown_bases=["some/model"]).write(folder)
        return (folder / SEEN_ROWS_FILE).read_bytes()


@share(4)
@given(st.data())
def test_the_rows_that_a_model_has_seen(data: st.DataObject) -> None:
    with new_folder() as folder, used_or_explained():
        (folder / SEEN_ROWS_FILE).write_bytes(data.draw(damaged_bytes(seen_rows_file())))
        seen = read_seen(folder)
        if seen is not None:
            json.dumps(find_leaks(labelled(), seen | SeenRows({})).to_dict())


@share(4)
@given(st.data())
def test_the_origin_of_predictions_never_stops_their_evaluation(data: st.DataObject) -> None:
    with new_folder() as folder:
        predictions = folder / "predictions.jsonl"
        predictions.write_bytes(prediction_lines(labelled()))
        model = UsedModel(role="checkpoint", path="runs/a", kind="tagger", weights="0f" * 16, threshold="0.5")
        write_origin(predictions, "ragtruth", labelled(), [model])
        path = predictions.with_suffix(".origin.json")
        path.write_bytes(data.draw(damaged_json(path.read_bytes())))
        origin = read_provenance(str(predictions), "ragtruth", labelled(), checkpoint=None)
        ("\n".join(origin.lines) + json.dumps(origin.to_dict(), allow_nan=False)).encode()
