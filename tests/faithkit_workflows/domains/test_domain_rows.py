"""Domains of the configuration, and their rows in two halves."""

import hashlib
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from data_modules.reading.exclude import Excluded
from faithkit_workflows.domains.baselines import DomainBaselines, Features
from faithkit_workflows.domains.domain_rows import DomainRows, Rows, read_all_domains, read_domains
from faithkit_workflows.settings.benchmark_blocks import DEV, HELD, Domains
from tests.faithkit_workflows.domains.corpora import write_corpora
from tests.running import plain_config

REAL = os.environ.get("FAITHKIT_TEST_DATA")


def block(*overrides: str) -> dict:
    return plain_config("evaluate", "benchmark=domains", *overrides)["benchmark"]


def training_rows(domains: dict[str, DomainRows]) -> dict[str, Rows]:
    return DomainBaselines(domains, Features(Path()), nli=None, max_fit_rows=None).fit_rows


def test_domains_that_share_texts_corpora_or_authors_are_related() -> None:
    related = {name: one.related_domains for name, one in read_domains(block()["domains"]).items()}
    assert related["wow"] == related["cmu_dog"] == {"wow", "cmu_dog"}
    assert related["ragtruth_qa"] == {"ragtruth_qa", "halueval_qa", "halueval_qa_whole", "diahalu"}
    assert related["snli"] == {"snli"} and all(name in others for name, others in related.items())
    assert all(name in related[other] for name, others in related.items() for other in others)


def test_an_unknown_domain_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ValidationError, match="did you mean xsum"):
        Domains.model_validate(block("benchmark.only=[xsom]"))


@pytest.fixture(scope="module")
def summaries() -> DomainRows:
    return read_all_domains(block("benchmark.only=[xsum]"))["xsum"]


def test_halves_share_no_group_and_the_held_one_is_not_used_for_training(summaries: DomainRows) -> None:
    dev, held = (summaries.select_part(half) for half in (DEV, HELD))
    groups = [{row.group for row in half.inputs} for half in (dev, held)]
    assert groups[0] and groups[1] and not groups[0] & groups[1]
    fitted = {row.id for row in training_rows({"xsum": summaries})["xsum"].inputs}
    assert fitted == {row.id for row in dev.inputs} and len(summaries.select_part("all")) == len(dev) + len(held)
    assert all(row.id.startswith("xsum/0-xsum_tokens/all/") for row in dev.inputs)


def test_the_halves_never_change(tmp_path: Path) -> None:
    rows = read_all_domains(block("benchmark.only=[snli]", f"benchmark.path={write_corpora(tmp_path)}"))["snli"]
    held = sorted(row.id for row in rows.select_part(HELD).inputs)
    assert len(held) == 36
    assert hashlib.sha256("\n".join(held).encode()).hexdigest()[:16] == "fc22fbc09a5406e1"


def test_rows_whose_texts_another_domain_tests_are_not_used_for_training() -> None:
    domains = read_all_domains(block())
    found, left_out = training_rows(domains), 0
    for name, rows in found.items():
        domain_rows, kept = domains[name], {row.id for row in rows.originals}
        tested = [
            row
            for other, theirs in domains.items()
            if other not in domain_rows.domain.related_domains
            for half in (DEV, HELD)
            for row in theirs.halves[half].originals
        ]
        excluded = Excluded.of(tested)
        assert not [row.id for row in rows.originals if excluded.covers(row)], name
        every = (*domain_rows.halves[DEV].originals, *domain_rows.fit_only.originals)
        gone = [row for row in every if row.id not in kept]
        assert all(excluded.covers(row) for row in gone), name
        left_out += len(gone)
    assert left_out


def test_an_extra_domain_is_tested_and_not_used_for_training() -> None:
    domains = read_all_domains(block("benchmark.only=[halueval_qa,halueval_qa_whole,xsum]"))
    assert set(training_rows(domains)) == {"halueval_qa", "xsum"}
    like, whole = (domains[name].select_part("all") for name in ("halueval_qa", "halueval_qa_whole"))
    gap, lengths = domains["halueval_qa"].domain.max_length_gap, dict[str, list[int]]()
    for row in whole.originals:
        lengths.setdefault(str(row.meta["pair"]), []).append(len(row.response.split()))
    similar = {pair for pair, (one, other) in lengths.items() if gap is not None and abs(one - other) <= gap}
    assert {row.meta["pair"] for row in like.originals} == similar and 0 < len(similar) < len(lengths)
    for row, joined in zip(like.originals, like.inputs, strict=True):  # the question joins the knowledge
        assert joined.knowledge == "\n".join([*(turn.text for turn in row.history), row.knowledge]) != row.knowledge
        assert joined.history == () and (joined.id, joined.response) == (row.id, row.response)


@pytest.mark.skipif(not REAL, reason="FAITHKIT_TEST_DATA names no folder with the corpora")
def test_the_real_corpora_have_both_classes_in_both_halves_of_every_domain() -> None:
    for name, rows in read_all_domains({**block(), "path": REAL}).items():
        for half in (DEV, HELD):
            assert {row.label for row in rows.select_part(half).inputs} == {"faithful", "hallucinated"}, (name, half)
