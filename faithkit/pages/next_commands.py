"""Names what a user can do next at the end of a script, as commands to type."""

import shlex
from collections.abc import Mapping
from typing import Any

from faithkit.files.model_folder import GENERATOR, TAGGER, sidecar_of
from faithkit.files.run_folder import RunFolder
from faithkit.reports.write_reports import Command


def after_training(run: RunFolder, config: Mapping[str, Any]) -> list[Command]:
    """The uses of a model: of a generator to answer, of a detector to score; and how it compares.

    Several seeds are several models: the first one's is used.
    """
    folder = run.stage(f"seed{config['seeds'][0]}") if config.get("seeds") else run
    path, sidecar = shlex.quote(str(folder.path)), sidecar_of(str(folder.path))
    kind = sidecar.kind if sidecar else None
    if kind == GENERATOR:
        return [
            ("talk to it", f"faithkit chat checkpoint={path}"),
            ("write answers", f"faithkit generate checkpoint={path}"),
            ("score its answers", f"faithkit evaluate benchmark=faithdial checkpoint={path}"),
        ]
    benchmark = "ragtruth" if kind == TAGGER else "begin"
    return [
        ("score your own rows", f"faithkit score FILE checkpoint={path}"),
        ("test it elsewhere", f"faithkit evaluate benchmark={benchmark} benchmark.path=FILE checkpoint={path}"),
        ("publish it", f"faithkit export checkpoint={path} output_dir=DIR"),
    ]


def after_evaluation(run: RunFolder) -> list[Command]:
    """The comparison with other runs, where there are figures to compare."""
    if not run.metrics.exists():
        return []
    return [("compare with another run", f"faithkit report runs=[{shlex.quote(str(run.path))},RUN]")]


def after_generation(run: RunFolder, config: Mapping[str, Any]) -> list[Command]:
    """The score of the answers, where a benchmark has the same name as the data."""
    from faithkit.cli import choices_of

    name = config["data"]["name"]
    files = sorted(run.predictions.glob("*.jsonl"))
    if name not in choices_of("benchmark") or len(files) != 1:
        return []
    path = shlex.quote(str(files[0]))
    return [("score the answers", f"faithkit evaluate benchmark={name} predictions={path}")]
