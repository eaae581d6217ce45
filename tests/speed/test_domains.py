"""The harness that leaves one domain out: its folds, its commands, and what it keeps."""

import argparse
import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic import Critic
from data_modules.build import build_source
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.records import Example, Turn
from faithkit_workflows.domains.baselines import rows_to_fit
from faithkit_workflows.domains.benchmark import read_all
from faithkit_workflows.domains.rows import DEV, Rows
from faithkit_workflows.domains.test_accesses import count_looks
from speed import domains as module
from speed.domain_evidence import evidence_sides, learnt_from
from speed.domain_sides import TARGET, Fold, make_folds, read_kept, train_arguments
from speed.domains import main, read_definition
from tests.faithkit_workflows.domains.corpora import SETS, write_corpora
from tests.running import compose
from tests.tiny import write_bert


def test_no_fold_trains_on_its_own_domain_or_its_kin_or_on_held_rows() -> None:
    definition = read_definition("embedded") | {"only": ["wow", "cmu_dog", "xsum", "snli"]}
    domains = read_all(definition)
    folds = {fold.name: fold for fold in make_folds(domains, rows_to_fit(domains), DEV)}
    assert set(folds["wow"].train) == {"xsum", "snli"} and set(folds["snli"].train) == {"wow", "cmu_dog", "xsum"}
    assert folds["wow"].training == folds["cmu_dog"].training != folds["snli"].training, "kin have one training"
    held = {row.id for own in domains.values() for row in own.halves["held"].shown}
    for fold in folds.values():
        assert not held & {row.id for rows in (*fold.train.values(), fold.tested) for row in rows.shown}


def test_a_fold_is_a_mix_that_train_composes_with_about_as_many_rows_of_each_domain(tmp_path: Path) -> None:
    domains = read_all(read_definition("embedded") | {"only": ["wow", "xsum", "conjnli"]})
    rows = rows_to_fit(domains)
    files = {name: tmp_path / f"{name}.jsonl" for name in rows}
    options = argparse.Namespace(max_train_rows=40, weights="minilm", nli="usual")
    fold = Fold("none", domains["wow"].part(DEV), rows, nli="own")
    cfg = compose("train", *train_arguments(files, fold, options))
    assert [part["_target_"] for part in cfg.data.parts] == [TARGET] * len(rows)
    given = {name: part.weight * len(rows[name].capped(40)) for name, part in zip(rows, cfg.data.parts, strict=True)}
    assert max(given.values()) < 1.6 * min(given.values())
    options.weights = "nli"
    begun_with = [compose("train", *train_arguments(files, replace(fold, nli=own), options)) for own in ("own", None)]
    assert [cfg.model.weights, *(one.model.weights for one in begun_with)] == ["minilm", "own", "usual"]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(st.tuples(TEXTS, TEXTS, st.booleans()), min_size=1, max_size=6))
def test_rows_come_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str, bool]]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "x.jsonl"
    rows = [
        Example(
            id=f"d/{i}", source="s", split="all", group=f"g{i}", knowledge=knowledge, response=response,
            label="hallucinated" if wrong else "faithful", history=(Turn(speaker="seeker", text=knowledge),),
        )
        for i, (knowledge, response, wrong) in enumerate(texts)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row.to_dict()) + "\n" for row in rows), encoding="utf-8")
    source = build_source(None, str(path), _target_=TARGET)
    assert list(read_examples(source, "all", report := ReadReport())) == rows
    assert Counter(report.counts)["kept"] == len(rows)


def test_what_other_settings_made_is_not_mixed_with_these(tmp_path: Path) -> None:
    file = tmp_path / "wow.json"
    assert read_kept(file, {"part": "dev"}) is None
    file.write_text(json.dumps({"settings": {"part": "dev"}, "baselines": {}}))
    assert read_kept(file, {"part": "dev"}) is not None
    with pytest.raises(SystemExit, match="other settings"):
        read_kept(file, {"part": "held"})


def test_evidence_of_a_fold_is_read_once_and_learns_from_no_domain_that_is_named(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domains = read_all(read_definition("embedded") | {"only": ["wow", "xsum", "snli"]})
    folds = make_folds(domains, rows_to_fit(domains), DEV)
    given = {"weights": str(tiny_bert), "precision": "32-true"}
    sides = evidence_sides(folds, tmp_path, **given, not_from=[])
    for fold in folds:
        assert set(sides[fold.name]) == {row.id for row in fold.tested.shown}
    monkeypatch.setattr(Critic, "evidence", lambda *_, **__: pytest.fail("it was kept"))
    assert evidence_sides(folds, tmp_path, **given, not_from=[]) == sides
    other = evidence_sides(folds, tmp_path, **given, not_from=["snli"])
    assert other["snli"] == sides["snli"] and other["wow"] != sides["wow"], "wow learns from xsum alone now"


def test_two_encoders_of_one_name_do_not_share_what_was_read(tiny_bert: Path, tmp_path: Path) -> None:
    domains = read_all(read_definition("embedded") | {"only": ["wow", "xsum"]})
    folds = make_folds(domains, rows_to_fit(domains), DEV)[:1]
    folders = [shutil.copytree(tiny_bert, tmp_path / name / "hf") for name in ("one", "two")]
    other = write_bert(tmp_path / "other", seed=1)
    shutil.copy(other / "model.safetensors", folders[1])  # the tokenizer is the same, the weights are not
    sides = [
        evidence_sides(folds, tmp_path / "kept", weights=str(folder), precision="32-true", not_from=[])
        for folder in folders
    ]
    assert sides[0] != sides[1] and len(list((tmp_path / "kept").iterdir())) == 2


def test_domains_without_rows_are_left_out_of_a_fold_and_one_that_has_no_other_is_told() -> None:
    domains = read_all(read_definition("embedded") | {"only": ["wow", "xsum", "snli"]})
    rows = rows_to_fit(domains)
    fold = Fold("wow", domains["wow"].part(DEV), {"xsum": rows["xsum"], "snli": Rows()})
    assert set(learnt_from(fold, [])) == {"xsum"}
    with pytest.raises(UserError, match="wow has no domain to learn from without snli, xsum"):
        learnt_from(fold, ["xsum", "snli"])


def command(monkeypatch: pytest.MonkeyPatch, out: Path, *arguments: str) -> None:
    base = ["--data", "embedded", "--out", str(out), "--no-report", "--resamples", "20", "--baselines-only", "grams"]
    monkeypatch.setattr("sys.argv", ["domains.py", *base, *arguments])
    main()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--folds-only snl", "did you mean snli"),
        ("--folds-only snli --set benchmark.only=[wow,xsum]", "use one of wow, xsum"),
        ("--not-from diahlu", "did you mean diahalu"),
        ("--baselines-only gramms", "did you mean grams"),
        ("--baselines-only cosine", "give --encoder or --nli"),
        ("--evidence --set benchmark.only=[wow,xsum] --not-from xsum", "wow has no domain to learn from"),
    ],
)
def test_a_wrong_name_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, told: str
) -> None:
    looks: list[object] = []
    monkeypatch.setattr(module, "record_looks", lambda *given, **_: looks.append(given))
    with pytest.raises(SystemExit, match="2"):
        command(monkeypatch, tmp_path / "out", *arguments.split(), "--part", "held")
    assert told in capsys.readouterr().err and not looks and not (tmp_path / "out").exists()


def test_looks_at_held_halves_are_counted_but_not_at_those_of_the_stand_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, real = count_looks(), str(write_corpora(tmp_path / "corpora"))
    sets = ["--set", SETS, "--folds-only", "snli"]
    command(monkeypatch, tmp_path / "stand-in", "--part", "held", "--set", SETS)
    command(monkeypatch, tmp_path / "dev", "--data", real, *sets)
    assert count_looks() == before
    command(monkeypatch, tmp_path / "held", "--data", real, "--part", "held", *sets)
    assert count_looks() - before == {"snli": 1}


def test_no_side_learns_from_a_domain_that_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folds: list[Fold] = []
    monkeypatch.setattr(module, "make_folds", lambda *given: folds.extend(make_folds(*given)) or folds)
    command(monkeypatch, tmp_path, "--not-from", "wow", "--set", "benchmark.only=[wow,xsum,conjnli]")
    assert {fold.name: set(fold.train) for fold in folds} == {
        "wow": {"xsum", "conjnli"}, "xsum": {"conjnli"}, "conjnli": {"xsum"},
    }  # fmt: skip
    for fold in folds:
        kept = json.loads((tmp_path / "baselines" / DEV / f"{fold.name}.json").read_text())
        assert set(kept["baselines"]["grams"]["trained_on"]) == set(fold.train)
        assert kept["settings"]["not_from"] == ["wow"]


def test_baselines_learn_from_as_many_rows_as_are_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command(monkeypatch, tmp_path, "--max-fit-rows", "10", "--set", "benchmark.only=[wow,xsum,conjnli]")
    for name in ("wow", "xsum", "conjnli"):
        kept = json.loads((tmp_path / "baselines" / DEV / f"{name}.json").read_text())["baselines"]["grams"]
        assert 0 < kept["num_rows"] <= 10 * len(kept["trained_on"])
