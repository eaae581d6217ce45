"""construct.py pipeline=describe: any dataset by numbers, tables, plots, a page, a datasheet and edits of seekers."""

import json
import re
from pathlib import Path

import pytest

from data_modules.embedded.layouts import WRITERS
from faithkit.errors import UserError
from faithkit.records import Example, Turn
from faithkit.statistics.metric import read_metrics
from faithkit_papers.corpus.corpus_rows import CorpusRows
from faithkit_papers.corpus.corpus_stats import compute_corpus_stats
from faithkit_papers.corpus.describe import find_seeker_edits
from faithkit_workflows import construct
from tests.faithkit_workflows.pipelines.serving import JUDGE, construct_here, overrides, server
from tests.running import compose

QUICK = ("pipeline.plots=false", "pipeline.num_resamples=20")


def describe(folder: Path, dataset: str, path: Path | str, *more: str) -> str:
    """Describes a dataset and returns the report."""
    given = (f"pipeline.dataset={dataset}", f"pipeline.path={path}", f"run_dir={folder}", *more)
    construct.main(compose("construct", "pipeline=describe", *given))
    return (folder / "report.md").read_text()


def embedded(folder: Path, dataset: str, rows: int = 60) -> Path:
    return Path(WRITERS[dataset](folder / dataset, {"train": rows, "test": rows}))


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("faithdial", ["Dziri et al. 2022, TACL 10, Table 2", "36,809", "before the edits", "edification"]),
        ("diahalu", ["Chen et al. 2024", "748", "rounds of a dialogue", "reasoning error"]),
        ("halludial", ["146,856", "21,706 (23.6%)", "by turn", "by scenario"]),
        ("audit", ["gold (wow)", "42.3%", "count neither as faithful nor"]),
        ("halueval", ["by task", "hallucinated, %"]),
        ("wow", ["None has a label", "turn before"]),
        ("begin", ["by model"]),
        ("xsum_tokens", ["types of spans"]),
    ],
)
def test_every_dataset_is_described_with_its_papers_figures(dataset: str, expected: list[str], tmp_path: Path) -> None:
    report = describe(tmp_path / "run", dataset, embedded(tmp_path, dataset), *QUICK)
    for words in expected:
        assert words.lower() in report.lower().replace("\\", ""), words
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"corpus.json", "metrics.json", "report.md", "report.html", "datasheet.md"} <= names
    sheet = (tmp_path / "run" / "datasheet.md").read_text()
    assert "TO ANSWER" in sheet
    assert re.search(r"^\d+ responses of \d+ dialogues or sources\.", sheet, re.MULTILINE)


def test_the_counts_are_those_of_the_rows(tmp_path: Path) -> None:
    path = embedded(tmp_path, "faithdial")
    describe(tmp_path / "run", "faithdial", path, *QUICK)
    found = json.loads((tmp_path / "run" / "corpus.json").read_text())
    for split in ("train", "test"):
        dialogues = json.loads((path / f"{split}.json").read_text())
        turns = [turn for one in dialogues for turn in one["utterances"]]
        of_split = found["dialogues"][split]
        assert (of_split["num_dialogues"], of_split["num_responses"]) == (len(dialogues), len(turns))
        assert of_split["num_turns"] == sum(max(len(t["history"]) for t in one["utterances"]) + 1 for one in dialogues)
    classes = sum(sum(counts.values()) for counts in found["classes"].values())
    assert classes == found["basic"]["faithdial"]["counts"]["num_responses"]


def test_the_page_needs_no_network_and_shows_text_as_text(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = embedded(tmp_path, "halludial")
    for file in path.rglob("*.json"):
        rows = json.loads(file.read_text())
        for row in rows:
            row["model"] = "<script>alert(1)</script> | $x_{1}$ \u202e"
        rows[0]["model"] = "another"
        file.write_text(json.dumps(rows))
    report = describe(tmp_path / "run", "halludial", path, "pipeline.num_resamples=20")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<script" not in page and "&lt;script&gt;" in page and "\u202e" not in page
    assert r"\<script\>alert(1)\</script\> \| $x\_{1}$" in report
    assert "default-src 'none'" in page and not re.search(r'(src|href)="(?!data:|#)', page)
    assert page.count("data:image/png;base64,") == len(list((tmp_path / "run").glob("*.png"))) >= 3
    assert all(f'id="{name}"' in page for name in re.findall(r'href="#([\w-]+)"', page))


def test_responses_are_grouped_by_other_fields(tmp_path: Path) -> None:
    path = embedded(tmp_path, "diahalu")
    report = describe(tmp_path / "run", "diahalu", path, *QUICK, "pipeline.facets=[rounds]")
    assert "diahalu: by rounds" in report and "by domain" not in report
    with pytest.raises(UserError, match="no response has a field 'mood'"):
        describe(tmp_path / "other", "diahalu", path, *QUICK, "pipeline.facets=[mood]")


def test_one_class_alone_and_rows_that_cannot_be_read_are_described(tmp_path: Path) -> None:
    path = embedded(tmp_path, "halludial")
    for file in path.rglob("*.json"):
        rows = [row for row in json.loads(file.read_text()) if row["target"].startswith("Yes")]
        file.write_text(json.dumps([*rows, {**rows[0], "target": "Perhaps"}]))
    with pytest.raises(UserError, match="field 'target'"):
        describe(tmp_path / "stop", "halludial", path, *QUICK)
    report = describe(tmp_path / "run", "halludial", path, *QUICK, "pipeline.on_bad_row=skip")
    assert "(100.0%) are hallucinated" in report.replace("\\", "")
    assert (tmp_path / "run" / "rejects.jsonl").exists()
    assert "rows could not be read" in (tmp_path / "run" / "datasheet.md").read_text()


def test_the_datasheet_of_a_benchmark_that_was_built_here_tells_how(tmp_path: Path) -> None:
    with server() as served:
        construct_here(*overrides(served, tmp_path / "built", "pipeline=spontaneous", "limit=6"))
    report = describe(tmp_path / "run", "halludial", tmp_path / "built" / "benchmark", *QUICK)
    assert "paper" not in report, "these are not the papers' rows"
    sheet = (tmp_path / "run" / "datasheet.md").read_text()
    assert "faithkit's pipeline `spontaneous`" in sheet and "- step annotate: " in sheet and JUDGE in sheet
    assert "manifest.json" in sheet and "http" not in sheet, "no address of a server"
    (tmp_path / "built" / "manifest.json").write_text("{")  # a damaged manifest is ignored here
    describe(tmp_path / "again", "halludial", tmp_path / "built" / "benchmark", *QUICK)
    assert "pipeline `" not in (tmp_path / "again" / "datasheet.md").read_text()


def dialogue(name: str, *texts: str, split: str = "test") -> list[Example]:
    """Makes a dialogue of seeker and wizard texts in turn; `new<old` is a wizard's text after its edit."""
    turns = [Turn(speaker="wizard" if place % 2 else "seeker", text=text) for place, text in enumerate(texts)]
    found = []
    for place in range(1, len(turns), 2):
        response, _, original = turns[place].text.partition("<")
        values = {"id": f"{name}:{place}", "source": "s", "split": split, "group": name, "knowledge": "k"}
        found.append(Example(**values, history=tuple(turns[:place]), response=response, original=original or None))
    return found


def test_turns_are_compared_within_the_dialogue_that_has_the_wizards_texts() -> None:
    wow = [
        *dialogue("7", "I like rivers.", "They are long.", "Which one?", "The Nile.", "Lakes?", "Also."),
        *dialogue("8", "Hello", "Also.", "Bye", "See you."),
    ]
    edited = [
        *dialogue("0", "I  like rivers.", "They flow.<They are long.", "Which is it?", "The Nile.", "Lakes?", "Also."),
        *dialogue("1", "Hi", "Nothing of it.", "Ho", "is there"),
    ]
    found = find_seeker_edits(edited, wow)
    assert found == [(("test", "0"), False), (("test", "0"), True), (("test", "0"), False)]


def test_the_share_is_a_metric_of_the_description(tmp_path: Path) -> None:
    options = ("pipeline.dataset=faithdial", "pipeline.wow_path=embedded", "pipeline.plots=false")
    construct.main(compose("construct", "pipeline=describe", *options, "limit=60", f"run_dir={tmp_path / 'run'}"))
    metric = read_metrics(tmp_path / "run" / "metrics.json")["test/embedded-faithdial/seeker_edited"]
    assert metric["value"] == 0 and metric["n"] > 60, "the embedded dialogues have the same seekers"


def test_edited_wizard_turns_are_counted_beside_those_without_an_original() -> None:
    stats = compute_corpus_stats(CorpusRows(dialogue("0", "a", "new<old", "b", "same<same", "c", "kept")))
    assert stats.edits == {"edited": 1, "not edited": 2}
    assert next(iter(stats.dialogues.values())).edited == pytest.approx(1 / 3)
