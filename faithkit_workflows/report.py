"""Compare runs: which is better, by how much, and on which examples. Runs are only read, never changed.

faithkit report                                               the runs below runs/: what, data, main metric, state
faithkit report runs='runs/*'                                 tables here, and report.html with everything
faithkit report runs=[runs/a,runs/b] html=a_or_b.html         two runs: the answers on which they disagree
faithkit report runs='runs/*' against=a html=null             the terminal alone, each run against one
"""

from typing import Any

from faithkit.cli import run_script


def main(cfg: Any) -> None:
    """Lists the runs, or compares those that are named."""
    from faithkit.files.open_run import resolve_config

    config = resolve_config(cfg)
    if config["runs"] is None:
        from faithkit.pages.page_tables import print_tables
        from faithkit.runs.listing import list_runs

        table, lines = list_runs()
        print_tables(table)
        print(*lines, sep="\n")
        return
    from faithkit.errors import UserError, choice_hint
    from faithkit.runs.reading import find_runs, name_runs_uniquely
    from faithkit_workflows.compare.comparison import compare_runs
    from faithkit_workflows.compare.comparison_page import write_comparison_page
    from faithkit_workflows.compare.comparison_tables import print_comparison

    runs = name_runs_uniquely(find_runs(config["runs"]))
    against, names = config["against"], [run.name for run in runs]
    if against is not None and against not in names:
        raise UserError(f"against: no run is called {against!r}", hint=choice_hint(against, names))
    comparison = compare_runs(runs, num_compared=config["num_compared"], num_resamples=config["num_resamples"])
    print_comparison(comparison, against=against)
    if config["html"]:
        title = f"{len(runs):,} runs compared" if len(runs) > 1 else runs[0].name
        write_comparison_page(config["html"], comparison, title=title, max_rows=config["max_rows"])
        print(config["html"])


def run() -> None:
    """Runs the command line."""
    run_script(main, "report", __doc__ or "", (), "faithkit_workflows.settings.reporting:ReportSettings")


if __name__ == "__main__":
    run()
