"""FaithBench: annotations of several people and levels, as one label and the spans behind it."""

import json
from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from faithkit.records import Example
from tests.data_modules.official.benchmark_sets import FAITHBENCH, POOL, note, sample
from tests.data_modules.official_rows import make, read


def write_batch(folder: Path, batch: Any = FAITHBENCH[0], number: int = 1) -> Path:
    path = folder / "data_for_release" / f"batch_{number}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(batch, indent=2))
    return path


def outcomes(examples: list[Example]) -> dict[str, str | None]:
    return {one.id: one.label for one in examples}


def test_a_summary_is_of_its_worst_label(tmp_path: Path) -> None:
    write_batch(tmp_path)
    (tmp_path / "annot").mkdir()
    (tmp_path / "annot" / "batch_1_annotation.json").write_text("{}")  # the repository has others of such names
    examples, counts = read(make("faithbench", tmp_path))
    assert [one.meta["level"] for one in examples] == ["consistent", "unwanted", "questionable", "benign", "consistent"]
    assert list(outcomes(examples).values()) == ["faithful", "hallucinated", "hallucinated", "faithful", "faithful"]
    assert counts == {"kept": 5, "annotations without a label, left out": 1}
    pool = examples[1]
    assert [pool.response[span.start : span.end] for span in pool.spans or ()] == ["a pool"], "two annotators, one span"
    assert pool.tags == ("Unwanted", "Unwanted.Extrinsic", "Questionable", "Benign")
    assert examples[3].spans == () and pool.meta["model"] == "maker/model-1" and pool.id == "batch_1:1"


@pytest.mark.parametrize(
    ("options", "changed", "kept"),
    [
        ({"questionable": "faithful"}, "faithful", 5),
        ({"questionable": "drop"}, None, 4),
        ({"benign": "hallucinated"}, "hallucinated", 5),
    ],
)
def test_questionable_and_benign_are_what_the_options_say(
    tmp_path: Path, options: dict[str, str], changed: str | None, kept: int
) -> None:
    examples, counts = read(make("faithbench", write_batch(tmp_path), **options))
    number = 2 if "questionable" in options else 3
    assert outcomes(examples).get(f"batch_1:{number}") == changed and counts["kept"] == kept
    assert counts["dropped: questionable"] == (changed is None)
    wrong = [one for one in examples if one.label == "hallucinated"]
    assert all(one.spans for one in wrong)


def test_a_span_whose_offsets_miss_its_text_is_moved_there_and_counted(tmp_path: Path) -> None:
    shifted = note(POOL, "a pool", "Unwanted") | {"summary_start": 1, "summary_end": 7}
    examples, counts = read(make("faithbench", write_batch(tmp_path, {"samples": [sample(0, POOL, shifted)]})))
    assert counts["span moved to its text, which its offsets miss"] == 1
    assert [POOL[span.start : span.end] for span in examples[0].spans or ()] == ["a pool"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"summary_end": 99}, r"samples\[1\]: annotations\[0\]: a span from 29 to 99 is none of the answer's 36"),
        ({"summary_span": "a sauna"}, "the text of a span is 'a sauna', but the answer has 'a pool' at 29 to 35"),
        ({"label": ["Funny"]}, "field 'label' has 'Funny'; known: Unwanted, Questionable"),
        ({"label": "Unwanted"}, "field 'label' must be a list"),
    ],
)
def test_a_bad_annotation_costs_its_summary_alone(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    bad = sample(1, POOL, note(POOL, "a pool", "Unwanted") | change)
    path = write_batch(tmp_path, {"samples": [sample(0, POOL), bad, sample(2, POOL)]})
    with pytest.raises(UserError, match=message) as caught:
        read(make("faithbench", path))
    assert "batch_1.json, line 1" in str(caught.value)
    examples, counts = read(make("faithbench", path), on_bad_row="skip")
    assert len(examples) == 2 and counts["rejected: bad row"] == 1
