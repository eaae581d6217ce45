"""The written projects in the real Label Studio: imported, annotated through its API, exported and read back, equal.

What its pages do with a mouse was tried by hand in a browser: docs/guides/annotating.md says what was seen.
"""

import pytest

from faithkit_papers.annotation.project import CONFIG, TASKS, ExportReport, read_export, read_rows
from faithkit_papers.annotation.schemes import SCHEMES
from tests.faithkit_papers.annotation.annotated import TEXT, example, project, suggested
from tests.faithkit_papers.annotation.label_studio import PROGRAM, LabelStudio

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM.exists(), reason="Label Studio is not there: make label-studio"),
    pytest.mark.xdist_group("label-studio"),
]
ANSWERS = {
    "faithdial": {"begin": ["Partial Hallucination", "Generic"], "vrm": ["Disclosure"], "edit": 'An "été" 🙂\nשלום'},
    "ragtruth": {"quality": ["good"]},
    "diahalu": {"hallucinated": ["Yes"], "round": 1, "type": ["irrelevance"], "explanation": "So & <so> 🙂"},
    "halludial": {"judgement_is": ["Inaccurate"], "correction": "No. C'est été 🙂."},
    "likert": {"interpretable": ["Yes"], "faithful": ["Faithful"], "cooperative": 4, "abstractive": 1, "engaging": 2},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    studio = LabelStudio(tmp_path_factory.mktemp("label-studio"))
    try:
        studio.wait()
        studio.call("POST", "/api/users/", {"email": "two@example.org", "username": "two", "password": "secret-two"})
        yield studio
    finally:
        studio.close()


@pytest.mark.parametrize("name", SCHEMES)
def test_a_project_comes_back_as_it_was_annotated(server, tmp_path, name):
    texts = {"ragtruth": [TEXT, "🙂é\r\nx"], "diahalu": [f"A1: {TEXT.splitlines()[0]}\nB1: ok"]}.get(name, [TEXT])
    history = {"history": ()} if name == "diahalu" else {}
    examples = [example(place, response=text, **history) for place, text in enumerate([*texts, "unannotated"], start=1)]
    written = project(tmp_path, name, examples)
    number = server.project(tmp_path / CONFIG, tmp_path / TASKS)
    tasks = server.tasks(number)
    assert [task["data"] for task in tasks] == [task["data"] for task in written], "imported as it was written"
    scheme, rows = read_rows(tmp_path)
    questions = {question.name: question for question in scheme.questions}
    expected = {}
    for task in tasks[:-1]:
        # The first annotator accepts the suggestions as the server has them; the second gives other answers.
        taken = suggested(task) if task["predictions"] else []
        server.annotate(task["id"], taken)
        row = rows[task["data"]["row"]]
        expected[row.id, "1"], answers = dict(row.suggested), dict(ANSWERS[name])
        if name == "ragtruth":
            in_order = sorted(row.suggested["spans"], key=lambda span: (span["start"], span["end"], span["label"]))
            expected[row.id, "1"]["spans"] = in_order
            answers["spans"] = [{"start": 0, "end": 1, "label": "Subtle Conflict", "flags": ["implicit_true"]}]
        target = list(row.texts)[-1]
        shown = task["data"][target]
        results = [one for key, answer in answers.items() for one in questions[key].results(answer, target, shown)]
        server.annotate(task["id"], results, completed_by=2)
        expected[row.id, "2"] = answers
        server.annotate(task["id"], [], completed_by=2, was_cancelled=True)
    report = ExportReport()
    found = read_export(server.export(number, tmp_path / "export.json"), scheme, rows, report)
    assert {(one.row, one.annotator): one.answers for one in found} == expected
    assert report.counts["cancelled annotation"] == len(texts)
    assert sum(report.counts[one] for one in ("task without annotation", "missing task")) == 1
