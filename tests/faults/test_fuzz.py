"""A few hundred mutations of every kind of input, the same ones each time; `make fuzz` makes 20,000."""

from pathlib import Path

import pytest

from tests.faults.campaign import Campaign, campaigns, run_campaign

TRIES = 500
ALL = list(campaigns())


@pytest.mark.parametrize("campaign", ALL, ids=lambda campaign: campaign.name)
def test_damage_is_refused_or_harmless(campaign: Campaign, tmp_path: Path) -> None:
    tries = max(5, round(TRIES * campaign.share / sum(one.share for one in ALL)))
    outcome = run_campaign(campaign, tmp_path, seed=0, numbers=range(tries))
    assert not outcome.failures, "\n".join(outcome.failures[:3])


@pytest.mark.parametrize(("name", "number"), [("cache of replies", 1229), ("cache of replies", 1378)])
def test_what_failed_once_is_mended(name: str, number: int, tmp_path: Path) -> None:
    (campaign,) = (campaign for campaign in ALL if campaign.name == name)
    assert not run_campaign(campaign, tmp_path, seed=0, numbers=[number]).failures
