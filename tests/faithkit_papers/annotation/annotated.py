"""Rows, projects and exports for the tests of annotation: texts with what browsers and offsets stumble over."""

import json

from faithkit.records import Example, Span, Turn
from faithkit_papers.annotation.project import CONFIG, TASKS, make_row, write_project
from faithkit_papers.annotation.schemes import SCHEMES

# An accent, emoji, a Windows line break, Hebrew, markup, a lone carriage return, two spaces and a tab.
TEXT = (
    'Été 🙂🙂: the <b>city</b>\r\nhas שלום עולם, 12 gates & "no" <script>x</script> wall.\nTwo  spaces.\rEnd 😀 of\ttab'
)


def example(number=1, response=TEXT, **values):
    """A row with spans after each difficult character."""
    quotes = {"city": "evident_conflict", "שלום": "subtle_baseless", "wall.\nTwo  sp": "subtle_conflict"}
    quotes |= {"😀 of": "evident_baseless"}
    places = {quote: response.index(quote) for quote in quotes if quote in response}
    spans = tuple(Span(start=n, end=n + len(quote), label=quotes[quote]) for quote, n in places.items())
    names = {"id": f"d{number}:0", "group": f"d{number}", "source": "ragtruth", "split": "test"}
    texts = {"knowledge": "K & <i>k</i>\n$knowledge", "target": "Yes. The city is no city.", "label": "hallucinated"}
    history = (Turn(speaker="seeker", text="Où ? 🙂"),)
    return Example(response=response, **{**names, **texts, "history": history, "spans": spans, **values})


def project(folder, scheme="ragtruth", examples=None, suggest=True, system=None):
    """Writes a project, and returns its tasks."""
    rows = [make_row(SCHEMES[scheme], one, None, suggest=suggest, system=system) for one in examples or [example()]]
    write_project(folder, SCHEMES[scheme], rows, "gold")
    assert (folder / CONFIG).exists()
    return json.loads((folder / TASKS).read_text(encoding="utf-8"))


def exported(tasks, path, annotations):
    """Writes a JSON export: for each task a list of (annotator, results) or of whole annotations."""
    number, rows = iter(range(1, 10**6)), []
    for place, (task, given) in enumerate(zip(tasks, annotations, strict=True), start=1):
        whole = [one for one in given if isinstance(one, dict)]
        own = ({"completed_by": one[0], "result": one[1]} for one in given if not isinstance(one, dict))
        whole += [{"id": next(number), "was_cancelled": False, **one} for one in own]
        rows.append({"id": place, "data": task["data"], "annotations": whole, "predictions": []})
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def suggested(task):
    """The results that a task was written with."""
    return task["predictions"][0]["result"]
