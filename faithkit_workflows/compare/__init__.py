"""Compare detectors on your own rows: which is better, on what do they disagree, what do they cost?

faithkit compare rows.csv models=[default,runs/...]                 a table as `faithkit score` reads it
faithkit compare rows.csv models=[default,my_module:my_function]    a function: a list of dicts in, probabilities out
faithkit compare rows.csv models=[lettucedetect-base,http://localhost:8000]    a detector of others, a server
faithkit compare runs/.../label_first.csv models=[...]              after you have filled its column `label`
faithkit compare resume=runs/...                                    continue after an interruption

With labels of people it reports accuracy beside simple baselines, and whether differences are more than chance.
Without labels it reports how often the models agree, and which rows to label first. It writes compare.html,
compare.json, answers.jsonl and label_first.csv into a run's folder. docs/guides/comparing.md explains the result.
`faithkit report` compares runs, by the other modules of this package.
"""

from typing import Any

from faithkit.cli import as_override, run_script

# What a resumed run may change: the limits, and what is counted.
MAY_CHANGE = ("max_seconds", "row_seconds", "batch_size", "api_key_variable", "num_to_label")
SETTINGS = "faithkit_workflows.settings.reporting:CompareSettings"


def main(cfg: Any) -> None:
    """Opens the run's folder, asks all models, compares them, and writes page, figures and rows to label."""
    from faithkit.files.open_run import open_run
    from faithkit.files.run_folder import log_to
    from faithkit.packages import require
    from faithkit.weights.resolve import check_available
    from faithkit_workflows.settings.reporting import CompareSettings

    with open_run(cfg, "compare", CompareSettings, may_change=MAY_CHANGE) as (run, config):
        log_to(run.log)
        for name in config["models"]:
            check_available(name)
        from faithkit_workflows.compare.model_comparison import ask_models, compare_models, read_rows
        from faithkit_workflows.compare.model_page import print_comparison, write_comparison

        rows, notes = read_rows(config)
        if any(row.label for row in rows):
            require("accuracy beside simple baselines")
        found = compare_models(rows, ask_models(rows, run.path, config), num_to_label=config["num_to_label"])
        found.notes[:0] = notes
        write_comparison(run.path, found, config)
        print_comparison(run.path, found)


def run() -> None:
    """Runs the command line."""
    run_script(main, "compare", __doc__ or "", (), SETTINGS, prepare=as_override)
