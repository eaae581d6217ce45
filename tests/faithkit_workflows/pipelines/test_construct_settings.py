"""What is wrong with the settings of construct.py is reported before a file is read or a model is asked."""

from pathlib import Path

import pytest

from faithkit.errors import UserError
from tests.faithkit_workflows.pipelines.serving import construct_here

SHARDS = ("pipeline=estimate", "pipeline.predictions=.")
ASKING = ("engine=openai", "engine.model=x", "pipeline.path=embedded", "pipeline.embedded_rows={train: 60, test: 60}")
TALKING = ("pipeline=self_dialogue", *ASKING[:2])
EDITING = ("pipeline=faithdial_edit", *ASKING)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ((*ASKING, "pipeline=induced", "pipeline.kinds=[]"), "kinds"),
        (("pipeline=rag", *ASKING[:2], "pipeline.path=/nowhere"), "/nowhere"),
        ((*ASKING, "pipeline.near_duplicates=2"), "near_duplicates is 2"),
        ((*ASKING, "models=[a/b,c/b]"), "two models have the name b"),
        ((*ASKING, "pipeline.dataset=faithdail"), "did you mean faithdial"),
        ((*ASKING, "prompts=/nowhere"), "there is no prompt reply"),
        ((*TALKING, "pipeline.min_rounds=9"), "min_rounds is 9"),
        ((*TALKING, "pipeline.topics=/nowhere.jsonl"), "no such file or folder"),
        ((*TALKING, "pipeline.domains=[chitchat]"), "chit-chat"),
        ((*TALKING, "pipeline.rounds=0"), "from 1 to 100"),
        ((*TALKING, "pipeline.detector=/nowhere"), "no such run or folder"),
        ((*EDITING, "pipeline.which=detector"), "which=detector needs pipeline.detector"),
        ((*EDITING, "pipeline.candidates=0"), "from 1 to 100"),
        ((*EDITING, "pipeline.dataset=wow"), "no reply is tagged"),
        (("pipeline=annotate", "pipeline.adjudicate=expert"), "adjudicate=expert needs pipeline.expert"),
        (("pipeline=annotate", "pipeline.suggest=predictions"), "suggest=predictions needs pipeline.predictions"),
        (("pipeline=annotate", "pipeline.export=nowhere.json"), "no such file"),
        (("pipeline=agreement", "pipeline.annotations=nowhere"), "no such file"),
        ((*SHARDS, "pipeline.dataset=ragtruth"), "dataset needs a single file"),
        ((*SHARDS, "pipeline.width=0.1"), "width needs pipeline.labels"),
        (
            ("pipeline=estimate", "pipeline.predictions=README.md", "pipeline.columns.id=null"),
            "names the rows of shards",
        ),
    ],
)
def test_wrong_settings_are_explained(given: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=problem) as caught:
        construct_here(*given, f"run_dir={tmp_path / 'run'}")
    assert len(str(caught.value).splitlines()) <= 5
