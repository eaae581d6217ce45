"""A folder of shards is answered as each of its files alone, with the same contract as scoring has."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from faithkit.errors import UserError
from faithkit.settings.check import check_settings
from faithkit_workflows.settings.prediction import GenerateSettings
from tests.data_modules.official_rows import write
from tests.faithkit_workflows.ray.data import answer, rows, untouched, write_shards
from tests.running import compose, plain_config


def questions(folder: Path, number: int = 3) -> Path:
    """Writes shards of rows that have no response yet."""
    for shard in range(number):
        made = [{"knowledge": r["knowledge"], "question": f"{r['response']}?", "day": shard} for r in rows(5, shard)]
        write(folder / f"part-{shard}.jsonl", made)
    return folder


@pytest.fixture(scope="module")
def finished(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with questions in `data`, answered into `out`."""
    folder = tmp_path_factory.mktemp("answered")
    answer(questions(folder / "data"), folder / "out", tiny_llama)
    return folder


@pytest.mark.parametrize("decoding", ["greedy", pytest.param("nucleus", marks=pytest.mark.slow)])
def test_the_answers_are_those_of_generate_on_the_file_alone(decoding: str, tiny_llama: Path, tmp_path: Path) -> None:
    from faithkit_workflows import generate

    data = write_shards(tmp_path / "data", num_rows=6)
    answer(data, tmp_path / "out", tiny_llama, f"decoding={decoding}")
    for file in sorted(data.iterdir()):
        given = ["data=pairs", f"data.path={file}", "data.columns.label=null", "data.split=all", f"decoding={decoding}"]
        options = ["decoding.max_new_tokens=6", "num_examples=0", f"run_dir={tmp_path / file.stem}"]
        generate.main(compose("generate", f"checkpoint={tiny_llama}", *given, *options))
        lines = (tmp_path / file.stem / "predictions" / "pairs.jsonl").read_text().splitlines()
        table = pq.read_table(tmp_path / "out" / f"{file.stem}.parquet")
        assert table["faithkit_response"].to_pylist() == [json.loads(line)["text"] for line in lines]


def test_rows_need_no_response_and_keep_their_columns(finished: Path) -> None:
    table = pq.read_table(finished / "out")
    assert table.column_names == ["knowledge", "question", "day", "response"] and table.num_rows == 15
    assert any(table["response"].to_pylist())


def test_a_detector_chooses_and_its_share_is_reported(finished, tiny_llama, trained, tmp_path, capsys) -> None:
    answer(finished / "data", tmp_path / "out", tiny_llama, "best_of=3", f"detector={trained}")
    table = pq.read_table(tmp_path / "out")
    assert table.column_names[3:] == ["response", "label", "probability", "spans"]
    judged = [row for row in table.to_pylist() if row["label"] is not None]
    assert judged and all(row["response"] and 0 <= row["probability"] <= 1 for row in judged)
    share = 100 * sum(row["label"] == "hallucinated" for row in judged) / len(judged)
    assert f" {share:.1f} [" in capsys.readouterr().out


def test_a_folder_of_another_model_or_settings_is_refused(finished: Path, tiny_llama: Path, trained: Path) -> None:
    wrong = {"decoding=greedy": "decoding", "seed=1": "decoding", "data.columns.history=null": "columns"}
    for override, name in [*wrong.items(), (f"detector={trained}", "differs in its")]:
        with pytest.raises(UserError, match=name):
            answer(finished / "data", finished / "out", tiny_llama, override, run=untouched)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["data=faithdial"], "tables of your own, and data is faithdial: data=pairs data.path=FOLDER"),
        (["data=pairs"], "engine=ray without data.path"),
        (["data=pairs", "data.path=in"], "engine=ray needs out"),
        (["data=pairs", "data.path=in", "out=in/out"], "out lies in the data"),
        (["data=pairs", "data.path=in", "out=out", "resample=3"], "best_of=8 detector=PATH"),
        (["data=pairs", "data.path=in", "out=out", "num_rows=3"], "engine=ray and num_rows exclude each other"),
        (["data=pairs", "data.path=in", "out=out", "resume=r"], "engine=ray and resume exclude each other"),
        (["data=pairs", "data.path=in", "out=out", "ray.engine=auto"], "ray.engine is 'auto'"),
        (["data=pairs", "data.path=in", "out=out", "ray.gpus=2"], "ray.engine=transformers, which runs on one"),
        (["data=pairs", "data.path=in", "out=out", "ray.gpus=1.5"], "not a whole number of GPUs"),
        (["data=pairs", "data.path=in", "out=out", "data.columns.history=5"], "data.columns.history is 5"),
        (["data=pairs", "data.path=in", "out=out", "ray.address=ray://h:1"], "for the Ray client"),
    ],
)
def test_what_engine_ray_lacks_or_has_too_much_is_reported(overrides: list[str], words: str) -> None:
    config = plain_config("generate", "checkpoint=owner/model", "engine=ray", *overrides)
    with pytest.raises(UserError) as caught:
        check_settings(config, GenerateSettings)
    assert words in str(caught.value)
