"""Makes FaithDial's transfer table: trains the missing critics, and tests each on every test set."""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from critic.sequence.scorer import Critic
from data_modules.build import read_benchmark
from faithkit import signals
from faithkit.errors import UserError, shorten
from faithkit.files.model_folder import sidecar_of
from faithkit.files.run_folder import RunFolder
from faithkit.metrics.classification import classification_metrics, join_outcomes
from faithkit.packages import environment
from faithkit.pages.page_tables import bold, escape_terminal, format_percent
from faithkit.provenance.used_model import describe_model
from faithkit.published.figures import published_table
from faithkit.reports.report import Provenance, Report, Row, leaks_table, metrics_without_leaked, score_table
from faithkit.reports.span_report import prefix_metrics
from faithkit.reports.write_reports import EvaluationResult, ReportOptions, write_reports
from faithkit.settings.config_files import EMBEDDED, choices_of
from faithkit.settings.types import ARGMAX
from faithkit.statistics.metric import Metric, full_names, write_results
from faithkit_workflows.answering.write_answers import DetectorAnswerer, write_with_origin
from faithkit_workflows.sweep import quote_override, run_script_apart, trainer_overrides

TRAINED_ON = ("decode", "dnli", "mnli", "faithcritic")
TESTED_ON = ("mnli", "begin", "faithcritic")
UNKNOWN = "unknown"
TITLES = {"decode": "DECODE", "dnli": "DNLI", "mnli": "MNLI", "begin": "BEGIN", "faithcritic": "FaithCritic"}
# A setting of a training: a choice of a group, or a value of a block.
_SETTING = re.compile(r"[a-z_]\w*=[\w,\[\]-]*|[a-z_]\w*(\.\w+)+=[^\n]*")
_FORBIDDEN = ("_target_", "extensions", "hydra", "${", "run_dir", "resume")
EXAMPLE = "['model.num_epochs=2','data.num_rows=5000']"  # Hydra does not parse a bare = within a list
NAME, VALIDATION = "transfer", "validation"
Cells = Mapping[tuple[str, str], Mapping[str, Metric]]
ARGMAX_THRESHOLD = 0.5  # a temperature does not change it
log = logging.getLogger("faithkit")


def run_transfer(run: RunFolder, config: Mapping[str, Any]) -> EvaluationResult:
    """Computes the table, and reports it with the paper's figures.

    The metrics of the critic trained on A and tested on B are named `test/B/A_accuracy` and so on.
    """
    block = config["benchmark"]
    check_trainings(config)
    # By the dataset's name: the name of a benchmark shows whether the embedded corpus replaces it.
    seed = config["seed"]
    tests = {name: read_benchmark({"name": name, **options}, seed=seed) for name, options in block["test"].items()}
    tested = {name: benchmark.examples[0].split for name, benchmark in tests.items()}
    cells: dict[tuple[str, str], Mapping[str, Metric]] = {}
    metrics: dict[str, Any] = {}
    origins: dict[str, Provenance] = {}
    answers: dict[str, list[Report]] = {}
    chosen_on: dict[str, str] = {}
    for trained_on, options in block["train"].items():
        checkpoint = options["checkpoint"] or _train(run, trained_on, options["path"], tested.get(trained_on), config)
        critic = Critic.load(checkpoint, precision=config["precision"], batch_tokens=config["batch_tokens"])
        model = describe_model(checkpoint)
        if block["threshold_aim"] == ARGMAX:
            critic.calibration = replace(critic.calibration, threshold=ARGMAX_THRESHOLD, aim=ARGMAX)
            model = replace(model, threshold=f"{ARGMAX_THRESHOLD}, argmax: not fitted")
        # The rows that the checkpoint was chosen on, from the configuration in its folder.
        sidecar = sidecar_of(checkpoint)
        data = (sidecar.origin.get("config") or {}).get("data") if sidecar else None
        choice = "rows that its folder does not name"
        if isinstance(data, Mapping) and data.get("split") is not None:
            choice = f"{data.get('validation_fraction', 0):.0%} of the groups of its {data['split']} split"
        elif isinstance(data, Mapping):
            is_tested = tested.get(trained_on) == VALIDATION
            choice = "the validation split that is tested" if is_tested else "its validation split"
        chosen_on[trained_on] = choice
        for name, benchmark in tests.items():
            origin = Provenance.of(benchmark.name, benchmark.examples, [model])
            cell = f"{benchmark.name}-by-{trained_on}"
            log.info("predicting %s", cell)
            predictions = write_with_origin(
                run, config, cell, benchmark.examples, DetectorAnswerer(critic), [model], dataset=benchmark.name
            )
            outcomes = join_outcomes(benchmark.examples, predictions)
            scored = classification_metrics(outcomes, num_resamples=config["num_resamples"]).metrics
            scored |= metrics_without_leaked(outcomes, origin.leaked, num_resamples=config["num_resamples"])
            cells[trained_on, name] = scored
            metrics |= full_names("test", benchmark.name, prefix_metrics(f"{trained_on}_", scored))
            origins[cell] = origin
            answered = [(example, predictions[example.id]) for example in benchmark.examples]
            answers[cell] = [Report(metrics={}, answers=answered)]
        facts = {name: origin.to_dict() for name, origin in origins.items()}
        write_results(run.metrics, metrics, {"config": config, "environment": environment(), "test_sets": facts})
    paths = {name: options["path"] for name, options in {**block["train"], **block["test"]}.items()}
    embedded = "the embedded corpus in its layout"
    sources = {name: embedded if path == EMBEDDED else Path(path).name for name, path in paths.items()}
    table = transfer_table(cells, sources=sources, chosen_on=chosen_on, threshold_aim=block["threshold_aim"])
    report = Report(
        metrics={},
        headline=(table,),
        tables=tuple(leaks_table(one, f"{name}, leaks") for name, one in origins.items() if one.leaked.any()),
        lines=tuple(f"{name}: {line}" for name, one in origins.items() for line in one.lines),
        alerts=tuple(f"{name}: {line}" for name, one in origins.items() for line in one.alerts),
        facts={"models": [model for one in origins.values() for model in one.to_dict()["models"]]},
    )
    write_reports(run, {NAME: [report], **answers}, ReportOptions.of(config))
    return EvaluationResult(metrics)


def check_trainings(config: Mapping[str, Any]) -> None:
    """Refuses names and overrides that are not plain settings, since they become part of a command, also on resume.

    Raises:
        UserError: A name is not a dataset, or an override is an option of the script or of Hydra, or names code.
    """
    block, datasets = config["benchmark"], choices_of("data")
    if config["scale"]["name"] not in choices_of("scale"):
        hint = f"use one of {', '.join(choices_of('scale'))}"
        raise UserError(f"no scale {shorten(config['scale']['name'])}", place="scale.name", hint=hint)
    if unknown := [name for name in block["train"] if name not in datasets]:
        hint = f"use some of {', '.join(datasets)}"
        raise UserError(f"no dataset {shorten(unknown[0])}", place="benchmark.train", hint=hint)
    for override in block["overrides"]:
        if not _SETTING.fullmatch(str(override)) or any(word in str(override) for word in _FORBIDDEN):
            hint = f"use settings of train.py, each in quotes, for example {EXAMPLE}"
            raise UserError(f"not a setting: {shorten(override)}", place="benchmark.overrides", hint=hint)


def _train(run: RunFolder, dataset: str, path: str, tested: str | None, config: Mapping[str, Any]) -> str:
    """Trains in a separate process; resumes an interrupted training, and reuses a finished one.

    Args:
        tested: The split of the same dataset that the table tests on. If it is validation, as for MNLI, which has no
            labelled test set, a fraction of the training split chooses the checkpoint instead.
    """
    folder = RunFolder(run.path / f"trained-on-{dataset}")
    if folder.metrics.exists():
        return str(folder.path)
    if folder.config.exists():
        arguments = [f"resume={folder.path}", *trainer_overrides(config.get("trainer"))]
    else:
        arguments = ["model=critic", f"data={dataset}", f"scale={config['scale']['name']}", f"run_dir={folder.path}"]
        arguments += [f"data.path={quote_override(path)}", f"seed={config['seed']}"]
        aim, fraction = config["benchmark"]["threshold_aim"], config["benchmark"]["validation_fraction"]
        arguments += [] if aim is None else [f"model.threshold_aim={quote_override(aim)}"]
        if tested == VALIDATION and fraction is not None:  # keeps the tested rows out of every choice
            arguments += ["data.split=train", f"data.validation_fraction={fraction}", "data.test_fraction=0"]
        arguments += trainer_overrides(config.get("trainer")) + list(config["benchmark"]["overrides"])
    log.info("training on %s: faithkit train %s", dataset, " ".join(arguments))
    code = run_script_apart("train", arguments)
    if code == signals.EXIT_CODE:
        raise signals.Interrupted
    if code:
        hint = f"resume={run.path} goes on; a new run reuses trained critics by checkpoint="
        raise UserError(f"training on {dataset} failed with exit code {code}", hint=hint)
    return str(folder.path)


def transfer_table(
    cells: Cells,
    *,
    sources: Mapping[str, str] | None = None,
    chosen_on: Mapping[str, str] | None = None,
    threshold_aim: str | None = None,
) -> Table:
    """Shows Table 4 with our figures under the paper's, all in percent.

    Args:
        cells: The metrics by training and test set; what was not run shows a dash.
        sources: What was used for each dataset, for example `{"begin": "BEGIN 2022, Wizard of Wikipedia part"}`.
        chosen_on: The rows that chose the checkpoint of each critic.
        threshold_aim: How all thresholds were chosen; None: by the training of each critic.
    """
    rows_of_paper = published_table("faithdial_transfer").rows
    published = {(row["trained_on"], row["tested_on"]): row["accuracy"] for row in rows_of_paper}
    rows: list[Row] = []
    for trained_on in TRAINED_ON:
        ours = {tested_on: cells.get((trained_on, tested_on), {}) for tested_on in TESTED_ON}
        marks = {tested_on: "†" * (tested_on != trained_on) for tested_on in TESTED_ON}
        theirs = {on: published[trained_on, on] for on in marks}
        paper = {on: f"{'-' if theirs[on] is None else f'{theirs[on]:.1f}'}{mark}" for on, mark in marks.items()}
        shown = {on: format_percent(found.get("accuracy")).partition(" ") for on, found in ours.items()}
        rows += [
            bold(TITLES[trained_on]),
            ("  paper", paper),
            ("  ours", {on: f"{v}{marks[on] * bool(ours[on])}{gap}{bounds}" for on, (v, gap, bounds) in shown.items()}),
            ("  macro-F1", {on: found.get("macro_f1") for on, found in ours.items()}),
            ("  majority", {on: found.get("majority_accuracy") for on, found in ours.items()}),
            None,
        ]
    sizes: dict[str, str] = {}
    for tested_on in TESTED_ON:
        counts = sorted({found["accuracy"].n or 0 for (_, on), found in cells.items() if on == tested_on})
        sizes[tested_on] = " or ".join(f"{n:,}" for n in counts if n) or "-"
    named = sources or {}
    rows += [("test rows", sizes), ("tested on", {tested_on: named.get(tested_on, UNKNOWN) for tested_on in TESTED_ON})]
    lines = [
        "† zero-shot; [low, high] 95% bootstrap interval over groups; majority: accuracy of the more frequent class"
    ]
    for name in (name for name in TRAINED_ON if any(trained_on == name for trained_on, _ in cells)):
        chosen = (chosen_on or {}).get(name, "unknown rows")
        lines.append(f"trained on {TITLES[name]}: {escape_terminal(named.get(name, UNKNOWN))}; chosen on {chosen}")
    fitted = "chosen for each critic on the rows that chose its checkpoint"
    argmax = "the more probable class (0.5), as in the paper's release; chosen on no rows"
    lines.append(f"threshold: {argmax if threshold_aim == ARGMAX else fitted}")
    title, columns = (
        "Critics across datasets, accuracy in percent (FaithDial, Table 4)",
        {on: TITLES[on] for on in TESTED_ON},
    )
    return score_table(title, "trained on", columns, rows, caption=lines, show_edge=True)
