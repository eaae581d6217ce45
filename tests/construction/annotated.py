"""Rows, projects and exports for the tests of annotation: texts with what browsers and offsets stumble over."""

import json

from construction.annotation.project import CONFIG, TASKS, make_row, write_project
from construction.annotation.schemes import SCHEMES
from faithkit.records import Example, Span, Turn

# An accent, emoji, a Windows line break, Hebrew, markup, a lone carriage return, two spaces and a tab.
TEXT = (
    'Été 🙂🙂: the <b>city</b>\r\nhas שלום עולם, 12 gates & "no" <script>x</script> wall.\nTwo  spaces.\rEnd 😀 of\ttab'
)


def example(number=1, response=TEXT, **values):
    """A row with spans after each difficult character."""
    quotes = (
        ("city", "evident_conflict"),
        ("שלום", "subtle_baseless"),
        ("wall.\nTwo  sp", "subtle_conflict"),
        ("😀 of", "evident_baseless"),
    )
    spans = [
        Span(start=response.index(q), end=response.index(q) + len(q), label=name) for q, name in quotes if q in response
    ]
    defaults = {
        "id": f"d{number}:0",
        "source": "ragtruth",
        "split": "test",
        "group": f"d{number}",
        "knowledge": "K & <i>k</i>\n$knowledge",
        "history": (Turn(speaker="seeker", text="Où ? 🙂"),),
        "label": "hallucinated",
        "spans": tuple(spans),
        "target": "Yes. The city is no city.",
    }
    return Example(response=response, **{**defaults, **values})


def project(folder, scheme="ragtruth", examples=None, suggest=True, system=None):
    """Writes a project, and returns its tasks."""
    rows = [make_row(SCHEMES[scheme], one, None, suggest=suggest, system=system) for one in examples or [example()]]
    write_project(folder, SCHEMES[scheme], rows, "gold")
    assert (folder / CONFIG).exists()
    return json.loads((folder / TASKS).read_text(encoding="utf-8"))


def exported(tasks, path, annotations):
    """Writes a JSON export: for each task a list of (annotator, results) or of whole annotations."""
    number = iter(range(1, 10**6))
    rows = []
    for place, (task, given) in enumerate(zip(tasks, annotations, strict=True), start=1):
        whole = [
            one
            if isinstance(one, dict)
            else {"id": next(number), "completed_by": one[0], "result": one[1], "was_cancelled": False}
            for one in given
        ]
        rows.append({"id": place, "data": task["data"], "annotations": whole, "predictions": []})
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def suggested(task):
    """The results that a task was written with."""
    return task["predictions"][0]["result"]
