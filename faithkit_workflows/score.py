"""Score rows of your own: which responses does their knowledge not support, and how many are they?

faithkit score my.csv checkpoint=runs/...                columns knowledge and response; adds label, probability, spans
faithkit score my.jsonl checkpoint=runs/... by=model     also the hallucinated share of each value of a column, or of
                                                         several: by=[model,topic]
faithkit score my.csv checkpoint=runs/... columns.knowledge=source columns.response=answer
faithkit score resume=runs/...                           go on after any interruption
faithkit score FOLDER checkpoint=runs/... engine=ray out=SCORED      all shards of a folder on a cluster, by Ray
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.cli import run_script

if TYPE_CHECKING:
    from faithkit.files.run_folder import RunFolder
    from faithkit_workflows.detectors.loading import Loaded
    from faithkit_workflows.tables.user_table import OwnRows

# What a resumed run may change: how it is carried out and counted, never what it judges.
MAY_CHANGE = ("abstain_at", "batch_tokens", "save_every_num_rows", "num_resamples", "by", "output", "save_texts")
GROUPS = ()
NOTE = """note: this is the detector's share, its errors are not in the interval; labels of some rows correct it:
  faithkit construct pipeline=estimate {predictions} pipeline.label_next=50"""


def main(cfg: Any) -> None:
    """Opens the run's folder and works in it; the shards of a cluster have a folder of their own."""
    from faithkit.files.open_run import open_run, plain
    from faithkit.files.run_folder import log_to
    from faithkit.weights.resolve import check_at_hand
    from faithkit_workflows.settings.scripts import ScoreSettings
    from faithkit_workflows.tables.score_output import check_output, check_resumed

    if cfg.get("engine") and cfg.engine.name:
        from faithkit.settings.check import check_settings
        from faithkit_workflows.ray.run import work_on_shards
        from faithkit_workflows.ray.scoring import Scoring

        check_settings(config := plain(cfg), ScoreSettings)
        work_on_shards(Scoring(config))
        return
    if not cfg.get("resume"):
        check_output(cfg.output)
    opened = open_run(cfg, "score", ScoreSettings, may_change=MAY_CHANGE, check_resumed=check_resumed)
    with opened as (run, config):
        log_to(run.log)
        check_at_hand(config["checkpoint"])
        score(run, config)


def score(run: "RunFolder", config: Mapping[str, Any]) -> None:
    """Reads the rows, judges them, writes them back with the verdicts, and shows the hallucinated share.

    The rows are read anew for each of this, and a portion of them is held: a file may be of any size.
    """
    from faithkit.calibration.score_calibration import drop_unsure_labels
    from faithkit.files.jsonl import stream_predictions, write_jsonl
    from faithkit.pages.tables import escape_terminal, print_tables
    from faithkit.reports.write_reports import ReportOptions, print_summary
    from faithkit_workflows.detectors.loading import load_checkpoint
    from faithkit_workflows.detectors.thresholds import with_threshold
    from faithkit_workflows.tables.score_output import written_by
    from faithkit_workflows.tables.scored_rows import names_added, scored_suffix, tell_names, write_scored
    from faithkit_workflows.tables.shares import Shares
    from faithkit_workflows.tables.user_table import listed, read_to_judge

    rows = read_to_judge(config)
    print(f"{rows.num_read:,} rows; columns: {rows.description}")
    if rejects := rows.report.rejects:
        write_jsonl(run.path / "rejects.jsonl", rejects)
        number = rows.report.counts["rejected: bad row"]
        print(f"note: {number:,} rows cannot be scored; {run.path / 'rejects.jsonl'} says why")
    name = Path(config["path"]).stem
    path = run.predictions / f"{name}.jsonl"
    # Runs of older versions have no such key.
    loaded = with_threshold(load_checkpoint(config), config.get("threshold"), config["checkpoint"])
    _judge(path, name, rows, loaded, config)
    output = Path(config["output"] or run.path / f"{name}.scored{scored_suffix(config['path'])}").expanduser()
    shares = Shares(listed(config["by"]))
    with written_by(run, config["output"]):
        write_scored(output, rows, drop_unsure_labels(stream_predictions(path), config.get("abstain_at")), shares.add)
    print_tables(shares.table(grouped_by=rows.grouped_by, num_resamples=config["num_resamples"]))
    print(NOTE.format(predictions=escape_terminal(shlex.quote(f"pipeline.predictions={path}"))))
    print(f"rows with their verdicts: {escape_terminal(str(output))}")
    tell_names(names_added(rows))
    print_summary(run, ReportOptions())


def _judge(path: Path, name: str, rows: "OwnRows", loaded: "Loaded", config: Mapping[str, Any]) -> None:
    """Writes a verdict on each row; what an interrupted run has written stays."""
    from functools import partial

    from faithkit.provenance.predicted_rows import to_line
    from faithkit.provenance.predictions_origin import write_origin
    from faithkit_workflows.answering.write_answers import DetectorAnswerer, stream_answers

    options: dict[str, Any] = {
        "at_a_time": config["save_every_num_rows"],
        "line_of": partial(to_line, texts=config.get("save_texts", True)),
    }
    answerer = DetectorAnswerer(loaded.detector)
    for _ in stream_answers(path, rows.examples, rows.num_examples, answerer, **options):
        pass
    write_origin(path, name, rows.examples, loaded.models)
    loaded.tell()


def as_override(arguments: Sequence[str]) -> list[str]:
    """Takes a first argument that is no `key=value` for the data, which Hydra knows as path=DATA."""
    key, is_pair, _ = arguments[0].partition("=") if arguments else ("", "=", "")
    if (not is_pair or "/" in key) and not key.startswith("-"):  # no key has a slash, and day=1/ is a usual folder
        quoted = arguments[0].replace("\\", "\\\\").replace("'", "\\'")
        return [f"path='{quoted}'", *arguments[1:]]
    return list(arguments)


def run() -> None:
    """The command line."""
    sys.argv[1:] = as_override(sys.argv[1:])
    run_script(main, "score", __doc__ or "", GROUPS, "faithkit_workflows.settings.scripts:ScoreSettings")


if __name__ == "__main__":
    run()
