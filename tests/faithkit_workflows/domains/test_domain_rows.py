"""Domains of the configuration, and their rows in two halves."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from data_modules.reading.exclude import Excluded
from faithkit.records import Example, Turn
from faithkit_workflows.domains.baselines import select_training_rows
from faithkit_workflows.domains.domain_rows import (
    DomainRows,
    keep_similar_lengths,
    prepend_history,
    read_all_domains,
    read_domain,
    read_domains,
)
from faithkit_workflows.settings.benchmark_blocks import DEV, HELD, Domains
from tests.faithkit_workflows.domains.corpora import write_corpora
from tests.running import plain_config

REAL = os.environ.get("FAITHKIT_TEST_DATA")
TEXTS = st.text(alphabet="ab \n", max_size=12)


def block(*overrides: str) -> dict:
    return plain_config("evaluate", "benchmark=domains", *overrides)["benchmark"]


def example(id: str, response: str = "r", group: str = "g", **values: object) -> Example:
    given: dict = {"source": "s", "split": "t", "knowledge": "k", **values}
    return Example(id=id, group=group, response=response, **given)


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
    return read_domain(read_domains(block()["domains"])["xsum"], "embedded")


def test_halves_share_no_group_and_the_held_one_is_not_used_for_training(summaries: DomainRows) -> None:
    dev, held = (summaries.select_part(half) for half in (DEV, HELD))
    groups = [{row.group for row in half.inputs} for half in (dev, held)]
    assert groups[0] and groups[1] and not groups[0] & groups[1]
    fitted = {row.id for row in summaries.training_rows().inputs}
    assert fitted == {row.id for row in dev.inputs} and len(summaries.select_part("all")) == len(dev) + len(held)
    assert all(row.id.startswith("xsum/0-xsum_tokens/all/") for row in dev.inputs)


def test_the_halves_never_change(tmp_path: Path) -> None:
    rows = read_domain(read_domains(block()["domains"])["snli"], str(write_corpora(tmp_path)))
    held = sorted(row.id for row in rows.select_part(HELD).inputs)
    assert len(held) == 36
    assert hashlib.sha256("\n".join(held).encode()).hexdigest()[:16] == "fc22fbc09a5406e1"


def test_rows_whose_texts_another_domain_tests_are_not_used_for_training() -> None:
    domains = read_all_domains(block())
    found, left_out = select_training_rows(domains), 0
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
        gone = [row for row in domain_rows.training_rows().originals if row.id not in kept]
        assert all(excluded.covers(row) for row in gone), name
        left_out += len(gone)
    assert left_out


def test_an_extra_domain_is_tested_and_not_used_for_training() -> None:
    domains = read_all_domains(block("benchmark.only=[halueval_qa,halueval_qa_whole,xsum]"))
    assert set(select_training_rows(domains)) == {"halueval_qa", "xsum"}
    like, whole = (domains[name].select_part("all") for name in ("halueval_qa", "halueval_qa_whole"))
    assert 0 < len(like) < len(whole)
    assert all(not row.history and row.knowledge.count("\n") >= 1 for row in like.inputs)  # the question joins it
    assert all(row.history for row in like.originals)


@given(st.lists(st.tuples(st.integers(0, 4), TEXTS), max_size=12), st.integers(0, 3))
def test_pairs_of_similar_length_differ_by_at_most_so_many_words(pairs: list[tuple[int, str]], gap: int) -> None:
    rows = [example(str(i), text, meta={"pair": str(pair)}) for i, (pair, text) in enumerate(pairs)]
    kept = keep_similar_lengths(rows, gap)
    for row in rows:
        lengths = [len(other.response.split()) for other in rows if other.meta["pair"] == row.meta["pair"]]
        assert (row in kept) == (len(lengths) == 2 and abs(lengths[0] - lengths[1]) <= gap)


@given(st.lists(TEXTS, max_size=3), TEXTS)
def test_the_history_moves_to_the_front_of_the_knowledge(turns: list[str], knowledge: str) -> None:
    row = example("1", knowledge=knowledge, history=tuple(Turn(speaker="seeker", text=text) for text in turns))
    joined = prepend_history(row)
    assert joined.knowledge == "\n".join([*turns, knowledge] if knowledge else turns) and joined.history == ()
    assert (joined.id, joined.response, joined.group) == (row.id, row.response, row.group)


@pytest.mark.skipif(not REAL, reason="FAITHKIT_TEST_DATA names no folder with the corpora")
def test_the_real_corpora_have_both_classes_in_both_halves_of_every_domain() -> None:
    for name, rows in read_all_domains({**block(), "path": REAL}).items():
        for half in (DEV, HELD):
            assert {row.label for row in rows.select_part(half).inputs} == {"faithful", "hallucinated"}, (name, half)
