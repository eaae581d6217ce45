"""Domains as the configuration defines them, and their rows in two halves."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.reading.exclude import Excluded
from faithkit.errors import UserError
from faithkit.records import Example, Turn
from faithkit_workflows.domains.baselines import rows_to_fit
from faithkit_workflows.domains.benchmark import read_all
from faithkit_workflows.domains.definition import HISTORIES, read_domains
from faithkit_workflows.domains.rows import (
    DEV,
    HELD,
    PARTS,
    DomainRows,
    Rows,
    join_history,
    of_like_length,
    read_domain,
)
from faithkit_workflows.settings import evaluation as settings
from tests.faithkit_workflows.domains.corpora import write_corpora
from tests.running import plain_config

REAL = os.environ.get("FAITHKIT_TEST_DATA")
TEXTS = st.text(alphabet="ab \n", max_size=12)


def block(*overrides: str) -> dict:
    return plain_config("evaluate", "benchmark=domains", *overrides)["benchmark"]


def example(id: str, response: str = "r", group: str = "g", **values: object) -> Example:
    given: dict = {"source": "s", "split": "t", "knowledge": "k", **values}
    return Example(id=id, group=group, response=response, **given)


def test_domains_that_share_texts_corpora_or_authors_are_kin() -> None:
    kin = {name: one.kin for name, one in read_domains(block()["domains"]).items()}
    assert kin["wow"] == kin["cmu_dog"] == {"wow", "cmu_dog"}
    assert kin["ragtruth_qa"] == {"ragtruth_qa", "halueval_qa", "halueval_qa_whole", "diahalu"}
    assert kin["snli"] == {"snli"} and all(name in own for name, own in kin.items())
    assert all(name in kin[other] for name, own in kin.items() for other in own)


def test_a_domain_that_there_is_not_is_refused_with_a_near_one() -> None:
    with pytest.raises(UserError, match="did you mean xsum"):
        read_domains(block()["domains"], ["xsom"])


@pytest.fixture(scope="module")
def summaries() -> DomainRows:
    return read_domain(read_domains(block()["domains"])["xsum"], "embedded")


def test_halves_share_no_group_and_nothing_learns_from_the_held_one(summaries: DomainRows) -> None:
    dev, held = (summaries.part(half) for half in (DEV, HELD))
    groups = [{row.group for row in half.shown} for half in (dev, held)]
    assert groups[0] and groups[1] and not groups[0] & groups[1]
    fitted = {row.id for row in summaries.to_fit().shown}
    assert fitted == {row.id for row in dev.shown} and len(summaries.part("all")) == len(dev) + len(held)
    assert all(row.id.startswith("xsum/0-xsum_tokens/all/") for row in dev.shown)


def test_the_halves_are_those_of_every_run_before(tmp_path: Path) -> None:
    """With another seed or share, rows that were kept for the end would have been looked at."""
    own = read_domain(read_domains(block()["domains"])["snli"], str(write_corpora(tmp_path)))
    held = sorted(row.id for row in own.part(HELD).shown)
    assert len(held) == 36
    assert hashlib.sha256("\n".join(held).encode()).hexdigest()[:16] == "fc22fbc09a5406e1"


def test_the_most_rows_are_those_of_each_half(tmp_path: Path) -> None:
    domain = replace(read_domains(block()["domains"])["snli"], max_rows=4)
    own = read_domain(domain, str(write_corpora(tmp_path)))
    assert [len(own.part(part)) for part in PARTS] == [4, 4, 8]


def test_fewer_rows_are_whole_groups_of_the_same_rows(summaries: DomainRows) -> None:
    dev = summaries.part(DEV)
    some, more = dev.capped(len(dev) // 3), dev.capped(len(dev) // 2)
    assert 0 < len(some) <= len(dev) // 3 and {row.id for row in some.shown} < {row.id for row in more.shown}
    chosen = {row.group for row in some.shown}
    assert [row for row in dev.shown if row.group in chosen] == list(some.shown)


def test_rows_whose_texts_another_domain_tests_are_learnt_from_nowhere_else() -> None:
    domains = read_all(block())
    found, left_out = rows_to_fit(domains), 0
    for name, rows in found.items():
        own, kept = domains[name], {row.id for row in rows.originals}
        tested = [
            row
            for other, theirs in domains.items()
            if other not in own.domain.kin
            for half in (DEV, HELD)
            for row in theirs.halves[half].originals
        ]
        excluded = Excluded.of(tested)
        assert not [row.id for row in rows.originals if excluded.covers(row)], name
        gone = [row for row in own.to_fit().originals if row.id not in kept]
        assert all(excluded.covers(row) for row in gone), name
        left_out += len(gone)
    assert left_out, "else nothing was tested"


def test_a_domain_beside_the_others_is_tested_and_never_learnt_from() -> None:
    domains = read_all(block("benchmark.only=[halueval_qa,halueval_qa_whole,xsum]"))
    assert set(rows_to_fit(domains)) == {"halueval_qa", "xsum"}
    like, whole = (domains[name].part("all") for name in ("halueval_qa", "halueval_qa_whole"))
    assert 0 < len(like) < len(whole)
    assert all(not row.history and row.knowledge.count("\n") >= 1 for row in like.shown)  # the question joins it
    assert all(row.history for row in like.originals)


@given(st.lists(st.tuples(st.integers(0, 4), TEXTS), max_size=12), st.integers(0, 3))
def test_pairs_of_like_length_differ_by_so_many_words_at_most(pairs: list[tuple[int, str]], gap: int) -> None:
    rows = [example(str(i), text, meta={"pair": str(pair)}) for i, (pair, text) in enumerate(pairs)]
    kept = of_like_length(rows, gap)
    for row in rows:
        own = [len(other.response.split()) for other in rows if other.meta["pair"] == row.meta["pair"]]
        assert (row in kept) == (len(own) == 2 and abs(own[0] - own[1]) <= gap)


@given(st.lists(TEXTS, max_size=3), TEXTS)
def test_the_history_stands_before_the_knowledge_and_nowhere_else(said: list[str], knowledge: str) -> None:
    row = example("1", knowledge=knowledge, history=tuple(Turn(speaker="seeker", text=text) for text in said))
    joined = join_history(row)
    assert joined.knowledge == "\n".join([*said, knowledge] if knowledge else said) and joined.history == ()
    assert (joined.id, joined.response, joined.group) == (row.id, row.response, row.group)


def test_no_rows_are_capped_to_none() -> None:
    assert len(Rows().capped(3)) == 0


@pytest.mark.skipif(not REAL, reason="FAITHKIT_TEST_DATA names no folder with the corpora")
def test_the_real_corpora_have_both_classes_in_both_halves_of_every_domain() -> None:
    for name, own in read_all({**block(), "path": REAL}).items():
        for half in (DEV, HELD):
            assert {row.label for row in own.part(half).shown} == {"faithful", "hallucinated"}, (name, half)


def test_the_choices_of_the_settings_are_those_of_the_code() -> None:
    assert (settings.DOMAIN_PARTS, settings.DOMAIN_HISTORIES) == (PARTS, HISTORIES)
