"""A key of a script can be written as an option, and a script knows its keys."""

import pytest

from faithkit.cli import as_keys, as_override
from faithkit.errors import UserError
from faithkit.settings.config_files import top_keys


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        (["--checkpoint", "runs/a"], ["checkpoint=runs/a"]),
        (["--checkpoint=runs/a", "seed=1"], ["checkpoint=runs/a", "seed=1"]),
        (["--fail-over", "0.05", "--debug", "--by", "[a,b]"], ["fail_over=0.05", "debug=true", "by=[a,b]"]),
        (["--columns.context", "source", "columns.answer=b"], ["columns.knowledge=source", "columns.response=b"]),
        (
            ["benchmark.columns.context=a", "path=columns.answer=b"],
            ["benchmark.columns.knowledge=a", "path=columns.answer=b"],
        ),
        (["--engine", "ray", "--save-texts=false"], ["engine=ray", "save_texts=false"]),
        (["-m", "--cfg", "job", "--frobnicate", "x"], ["-m", "--cfg", "job", "--frobnicate", "x"]),
    ],
)
def test_options_that_are_keys_are_written_as_keys(typed: list[str], read: list[str]) -> None:
    assert as_keys(typed, "score") == read


@pytest.mark.parametrize("typed", [["--checkpoint"], ["--checkpoint", "--debug"]])
def test_an_option_without_its_value_is_refused(typed: list[str]) -> None:
    with pytest.raises(UserError, match=r"--checkpoint has no value(.|\n)*checkpoint=VALUE"):
        as_keys(typed, "score")


def test_the_file_may_follow_keys_and_no_option() -> None:
    assert as_override(["checkpoint=x", "my.csv", "seed=1"]) == ["checkpoint=x", "path='my.csv'", "seed=1"]
    assert as_override(["--cfg", "job"]) == ["--cfg", "job"]


def test_groups_are_keys_and_flags_are_known() -> None:
    keys, flags = top_keys("train")
    assert {"model", "experiment", "seed", "run_dir"} <= keys and "defaults" not in keys
    assert flags == {"verbose", "debug", "fast"}
