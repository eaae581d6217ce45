"""Score rows of your own: which responses does their knowledge not support, and how many are they?

faithkit score my.csv checkpoint=runs/...                columns knowledge and response; adds label, probability, spans
faithkit score my.jsonl checkpoint=runs/... by=model     also the hallucinated share of each value of a column
faithkit score my.csv checkpoint=runs/... columns.knowledge=source columns.response=answer
faithkit score resume=runs/...                           go on after any interruption
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.cli import run_script

if TYPE_CHECKING:
    from faithkit.files.run_folder import RunFolder

# What a resumed run may change: how it is carried out and counted, never what it judges.
MAY_CHANGE = ("batch_tokens", "save_every_num_rows", "num_resamples", "by", "output", "save_texts")
GROUPS = ()


def main(cfg: Any) -> None:
    """Opens the run's folder and works in it."""
    from faithkit.files.open_run import open_run
    from faithkit.files.run_folder import log_to
    from workflows.settings.scripts import ScoreSettings

    with open_run(cfg, "score", ScoreSettings, may_change=MAY_CHANGE) as (run, config):
        log_to(run.log)
        score(run, config)


def score(run: "RunFolder", config: Mapping[str, Any]) -> None:
    """Reads the rows, judges them, writes them back with the verdicts, and shows the hallucinated share."""
    from critic.requests import join_passages, number_passages
    from faithkit.evaluation.tables import show
    from faithkit.files.jsonl import write_jsonl
    from faithkit.files.model_folder import TAGGER
    from workflows.detectors import kind_of, load_checkpoint
    from workflows.origins import write_with_origin
    from workflows.own_rows import read_own_rows, share_table, write_scored
    from workflows.write_answers import DetectorAnswerer

    join = number_passages if kind_of(config["checkpoint"]) == TAGGER else join_passages
    options = {name: config[name] for name in ("by", "on_bad_row", "num_rows")}
    rows = read_own_rows(config["path"], config["columns"], join=join, **options)
    loaded = load_checkpoint(config)
    if rows.rejects:
        write_jsonl(run.path / "rejects.jsonl", rows.rejects)
        print(f"note: {len(rows.rejects):,} rows cannot be scored; {run.path / 'rejects.jsonl'} says why")
    name = Path(config["path"]).stem
    path, portion = run.predictions / f"{name}.jsonl", config["save_every_num_rows"]
    answerer = DetectorAnswerer(loaded.detector)
    options = {"at_a_time": portion, "texts": config.get("save_texts", True)}
    predictions = write_with_origin(path, name, rows.examples, answerer, loaded.models, **options)
    output = Path(config["output"] or run.path / f"{name}.scored{Path(config['path']).suffix}")
    write_scored(output, rows, predictions)
    show(share_table(rows, predictions, by=config["by"], num_resamples=config["num_resamples"]))
    print(output)
    print(run.path)


def as_override(arguments: Sequence[str]) -> list[str]:
    """Takes a first argument that is no `key=value` for the file, which Hydra knows as path=FILE."""
    if arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        quoted = arguments[0].replace("\\", "\\\\").replace("'", "\\'")
        return [f"path='{quoted}'", *arguments[1:]]
    return list(arguments)


def run() -> None:
    """The command line."""
    sys.argv[1:] = as_override(sys.argv[1:])
    run_script(main, "score", __doc__ or "", GROUPS, "workflows.settings.scripts:ScoreSettings")


if __name__ == "__main__":
    run()
