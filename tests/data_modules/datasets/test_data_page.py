"""docs/reference/data.md has the address of each dataset's loader, and the licence of model cards."""

import re

import pytest

from data_modules.build import find_dataset
from faithkit.targets import DATASETS as NAMES
from faithkit.training.export import DATASETS
from tests.running import ROOT

ROWS = re.findall(
    r"^\| (`.*?`) \| (\S+) \| (.*?) \|", (ROOT / "docs" / "reference" / "data.md").read_text(), re.MULTILINE
)
TABLE = {name: (address, licence) for names, address, licence in ROWS for name in re.findall(r"`(\w+)`", names)}


@pytest.mark.parametrize("name", sorted({*NAMES, *DATASETS} - {"embedded", "pairs"}))
def test_the_page_agrees_with_loader_and_card(name: str) -> None:
    address, licence = TABLE[name]
    if name not in ("weak_wow", "dropped_support"):  # made of another one
        module = find_dataset(name).__module__.replace(".", "/")
        assert address.rstrip("/") in (ROOT / f"{module}.py").read_text()
    assert licence == DATASETS[name].get("licence", licence)
    assert ("licence" in DATASETS[name]) == licence.islower() or licence in ("not confirmed", "several")
