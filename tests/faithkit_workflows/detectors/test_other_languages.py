"""With a multilingual checkpoint the whole path reads other languages; other detectors warn, stop or ignore them."""

import json
from pathlib import Path
from typing import Any

import pytest

from critic.tagger.span_calibration import SpanCalibration
from faithkit import check
from faithkit.errors import UserError
from faithkit.languages import ANY, languages_of
from faithkit.words import sentence_places
from faithkit_workflows.adapters.scorer import FaithfulnessScorer, describe, to_dict
from faithkit_workflows.detectors.loading import load_detector
from faithkit_workflows.serve.schemas import CheckResult, Problem, Row
from faithkit_workflows.serve.served_model import Asked, ServedModel
from tests.data_modules.official_rows import write
from tests.model_folders import make_foreign
from tests.running import compose

ROWS = {
    "de": (
        "Die Pumpe hat eine Garantie von 24 Monaten ab dem Kauf. Der Filter ist in dieser Garantie nicht enthalten.",
        "Die Garantie gilt für 36 Monate ab dem Kauf. Der Filter ist über die Garantie auch enthalten.",
    ),
    "zh": (
        "水泵自购买之日起保修二十四个月。滤芯不在保修范围之内。",
        "水泵自购买之日起保修三十六个月。滤芯也在保修范围之内。",
    ),
    "ar": (
        "تبلغ مدة ضمان المضخة 24 شهرا من تاريخ الشراء. لا يشمل الضمان الفلتر الذي يجب تغييره.",
        "تبلغ مدة ضمان المضخة 36 شهرا من تاريخ الشراء. يشمل الضمان الفلتر الذي يجب تغييره.",
    ),
    "hi": (
        "पंप की वारंटी खरीद की तारीख से 24 महीने की है। फ़िल्टर वारंटी में शामिल नहीं है।",
        "पंप की वारंटी खरीद की तारीख से 36 महीने की है। फ़िल्टर भी वारंटी में शामिल है।",
    ),
}
ENGLISH = ("The pump has a warranty of 24 months.", "The warranty of the pump is 36 months.")


@pytest.fixture(scope="session")
def write_multilingual(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Writes a tagger of random weights that reads bytes, trained on these datasets as its sidecar has it."""

    def write(*datasets: str) -> Path:
        import torch
        from transformers import BertForTokenClassification

        from critic.tagger.span_calibration import Settings, tagger_labels
        from faithkit.files.model_folder import write_folder
        from tests.tiny import bert_config, tiny_tokenizer

        folder, tokenizer, labels = tmp_path_factory.mktemp("tagger"), tiny_tokenizer("bpe"), tagger_labels(False)
        torch.manual_seed(0)
        size = {"vocab_size": len(tokenizer), "max_position_embeddings": 512, "initializer_range": 0.5}
        names = {"id2label": dict(enumerate(labels)), "label2id": {name: n for n, name in enumerate(labels)}}
        model = BertForTokenClassification(bert_config(**size, **names, num_labels=len(labels))).eval()
        reading = SpanCalibration(char_threshold=0.5, response_threshold=0.0)
        origin = {"data": {"sizes": {"train": dict.fromkeys(datasets, 10)}}}
        settings = Settings(labels=labels, max_length=500, calibration=reading, origin=origin)
        write_folder(folder, model, tokenizer, settings.to_sidecar())
        return folder

    return write


@pytest.fixture(scope="session")
def multilingual(write_multilingual: Any) -> str:
    return str(write_multilingual("psiloqa"))


def test_every_kind_of_checkpoint_declares_its_languages(write_multilingual: Any, multilingual: str) -> None:
    def read(folder: Path | str) -> tuple[str, ...]:
        return languages_of(load_detector(str(folder), precision="32-true", batch_tokens=None))

    assert {"de", "zh", "ar", "hi", "en"} <= set(read(multilingual))
    assert read("default") == read(write_multilingual("ragtruth")) == ("en",)
    assert read(write_multilingual("pairs")) == (ANY,)
    foreign = make_foreign(write_multilingual("ragtruth"))
    assert read(foreign) == ("en",)
    (foreign / "README.md").write_text("---\nlanguage: de\n---\n")
    assert read(foreign) == ("de",)


@pytest.mark.parametrize(("context", "answer"), ROWS.values(), ids=ROWS)
def test_marks_evidence_and_sentences_have_places_in_the_texts(context: str, answer: str, multilingual: str) -> None:
    found = check(context, answer, by=multilingual, on_language="stop")
    assert found.language is None and found.label == "hallucinated" and found.spans
    for span in found.spans:
        assert span.text == answer[span.start : span.end] and span.text.strip() == span.text
        assert span.evidence is not None and span.evidence.text == context[span.evidence.start : span.evidence.end]
    for text in (context, answer):
        parts = [text[begin:end] for begin, end in sentence_places(text)]
        assert len(parts) == 2 and "".join(parts) == text.replace(parts[0] + " ", parts[0])


def score(checkpoint: str, folder: Path, *overrides: str) -> tuple[list[dict[str, Any]], str]:
    """Scores the rows; returns them with the verdicts, and the page."""
    from faithkit_workflows import score

    rows = [{"context": context, "answer": answer} for context, answer in [*ROWS.values(), ENGLISH]]
    keys = (f"path={write(folder / 'rows.jsonl', rows)}", f"checkpoint={checkpoint}", f"run_dir={folder / 'run'}")
    score.main(compose("score", "num_resamples=20", *keys, *overrides))
    lines = (folder / "run" / "rows.scored.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines], (folder / "run" / "answers.html").read_text()


def test_a_multilingual_model_scores_a_table_without_a_note(multilingual: str, tmp_path: Path) -> None:
    scored, page = score(multilingual, tmp_path)
    assert all("language" not in row for row in scored) and "does not read" not in page
    for row, (_, answer) in zip(scored, [*ROWS.values(), ENGLISH], strict=True):
        assert row["label"] == "hallucinated" and row["spans"]
        assert all(span["text"] == answer[span["start"] : span["end"]] for span in row["spans"])
        first = answer[: row["spans"][0]["start"]].strip()
        assert first in page, "before the first mark"


def test_a_table_gets_the_column_and_one_note(write_multilingual, tmp_path, capsys) -> None:
    english = str(write_multilingual("ragtruth"))
    scored, page = score(english, tmp_path)
    note = "4 of 5 rows (80.0%) are in a language that the detector does not read: de 1, zh 1, ar 1, hi 1; it reads en"
    assert [row["language"] for row in scored] == [*ROWS, None]
    assert capsys.readouterr().out.count(note) == 1 and note in page
    (tmp_path / "stop").mkdir()
    with pytest.raises(UserError, match=r"4 of 5 rows \(80\.0%\)"):
        score(english, tmp_path / "stop", "on_language=stop")
    (tmp_path / "ignore").mkdir()
    scored, page = score(english, tmp_path / "ignore", "on_language=ignore")
    assert all("language" not in row for row in scored) and note not in page


def test_python_and_adapters_warn_stop_or_are_quiet(write_multilingual: Any, caplog: pytest.LogCaptureFixture) -> None:
    english = str(write_multilingual("ragtruth"))
    contexts, answers = zip(*ROWS.values(), ENGLISH, strict=True)
    found = FaithfulnessScorer(english).score(answers, contexts, [None] * 5)
    assert [one.language for one in found] == [*ROWS, None] and len(caplog.records) == 1
    assert to_dict(found[0])["language"] == "de" and "language" not in to_dict(found[-1])
    assert "does not read the language, de" in describe(found[0]) and "language" not in describe(found[-1])
    with pytest.raises(UserError, match="does not read: de 1, zh 1"):
        FaithfulnessScorer(english, on_language="stop").score(answers, contexts, [None] * 5)
    quiet = FaithfulnessScorer(english, on_language="ignore").score(answers, contexts, [None] * 5)
    assert not any(one.language for one in quiet) and len(caplog.records) == 1
    with pytest.raises(UserError, match="on_language"):
        check(*ENGLISH, by=english, on_language="warned")


@pytest.mark.parametrize("on_language", ["warn", "stop", "ignore"])
def test_the_service_adds_the_language_or_refuses_the_row(on_language, write_multilingual, caplog) -> None:
    config = {"threshold": None, "precision": "32-true", "labels": None, "on_language": on_language}
    model = ServedModel("tiny", str(write_multilingual("ragtruth")), config)
    model.load()
    assert model.problem is None
    rows = [Row(knowledge=context, response=answer) for context, answer in (ROWS["de"], ENGLISH)]
    for _ in range(2):
        other, english = model.judge([Asked(row, row.to_example("a", model.join)) for row in rows])
        assert isinstance(english, CheckResult) and "language" not in english.model_dump()
        if on_language == "stop":
            assert isinstance(other, Problem) and (other.code, other.status) == ("language_not_read", 422)
        else:
            assert isinstance(other, CheckResult)
            assert other.model_dump().get("language") == ("de" if on_language == "warn" else None)
    logged = [record.message for record in caplog.records if "does not read" in record.message]
    assert len(logged) == (0 if on_language == "ignore" else 1), "once for each language"
