import re

from faithkit.metrics.results import Results, full_names
from faithkit.pages.page_tables import render_text
from faithkit.statistics.metric import Metric
from faithkit_workflows.benchmarks.transfer import (
    TESTED_ON,
    TRAINED_ON,
    collect_transfers,
    paper_accuracies,
    transfer_table,
)


def metric(value):
    return Metric(value=value, low=value - 0.02, high=value + 0.02, n=1864)


def results(*datasets):
    row = {"accuracy": metric(0.703), "macro_f1": metric(0.61), "majority_accuracy": metric(0.55), "f1": metric(0.4)}
    metrics = {}
    for dataset in datasets:
        metrics |= full_names("test", dataset, row)
    return Results(metrics=metrics)


def test_the_papers_table_is_whole():
    assert set(paper_accuracies()) == {(trained_on, tested_on) for trained_on in TRAINED_ON for tested_on in TESTED_ON}
    text = render_text(transfer_table([]))
    assert "62.5†" in text
    assert re.search(r"paper +\| +93\.1 \|", text)
    assert re.search(r"74\.7† \| +71\.6† \| +86\.5 \|", text)


def test_our_figures_stand_under_the_papers_with_what_they_were_taken_on():
    cells = collect_transfers("faithcritic", results("begin", "faithcritic", "snli"))
    assert [cell.tested_on for cell in cells] == ["begin", "faithcritic"]
    sources = {"begin": "BEGIN 2022 [red]", "faithcritic": "embedded corpus"}
    text = render_text(transfer_table(cells, sources=sources))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert re.search(r"ours +\| +- \| +70\.3† \[68\.3, 72\.3\] \| +70\.3 \[68\.3, 72\.3\] \|", text)
    assert re.search(r"macro-F1 +\| +- \| +61\.0 \[59\.0, 63\.0\]", text)
    assert re.search(r"majority +\| +- \| +55\.0 \[53\.0, 57\.0\]", text)
    assert re.search(r"test rows +\| +- \| +1,864 \|", text)
    assert re.search(r"tested on +\| +unknown \| +BEGIN 2022 \[red\] \| +embedded corpus \|", text)
    assert "trained on FaithCritic: embedded corpus" in text
