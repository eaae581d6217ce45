"""Answer dialogues with a trained generator; optionally let a detector choose among several answers.

faithkit generate checkpoint=runs/... data=faithdial data.path=DIR decoding=greedy    the test split; data.split=NAME
faithkit generate checkpoint=runs/... data=wow best_of=8 detector=runs/...            the one that a critic trusts most
faithkit generate checkpoint=runs/... resample=10   with control=ctrl: again while the wanted features are missing
faithkit generate checkpoint=runs/... engine=vllm batch_size=256                      or transformers; auto chooses
faithkit generate resume=runs/...                                                     go on after any interruption
faithkit generate checkpoint=runs/... data=pairs data.path=FOLDER engine=ray out=ANSWERED   all shards, on a cluster
"""

import logging
from typing import TYPE_CHECKING, Any

from faithkit.cli import run_script

if TYPE_CHECKING:
    from faithkit.files.run_folder import RunFolder

# What a resumed run may change: how it is carried out and shown, never what it answers.
MAY_CHANGE = ("batch_size", "save_every_num_rows", "num_examples", "save_texts", "verbose")
GROUPS = ("data", "decoding", "engine", "scale")
SETTINGS = "faithkit_workflows.settings.prediction:GenerateSettings"

log = logging.getLogger("faithkit")


def main(cfg: Any) -> None:
    """Opens the run's folder and works in it; the shards of a cluster have a folder of their own."""
    from faithkit.files.open_run import open_run, resolve_config
    from faithkit.files.run_folder import log_to
    from faithkit.weights.resolve import check_available
    from faithkit_workflows.settings.prediction import GenerateSettings

    if cfg.engine.name == "ray":
        from faithkit.settings.check import check_settings
        from faithkit_workflows.ray.run_shards import work_on_shards
        from faithkit_workflows.ray.shard_worker import Answering

        check_settings(config := resolve_config(cfg), GenerateSettings)
        work_on_shards(Answering(config))
        return
    with open_run(cfg, "generate", GenerateSettings, may_change=MAY_CHANGE) as (run, config):
        log_to(run.log)
        # Logged before the slow imports of the models.
        log.info("generate: data=%s, into %s", config["data"]["name"], run.path)
        check_available(config["checkpoint"])
        generate(run, config)


def generate(run: "RunFolder", config: dict[str, Any]) -> None:
    """Reads examples, loads the models, writes the answers and shows some of them."""
    from rich.text import Text

    from data_modules.build import read_generation_inputs
    from faithkit.fast import describe_runner
    from faithkit.pages.page_tables import add_fields, context_fields, escape_terminal, new_field_table
    from faithkit.provenance.used_model import describe_model
    from faithkit.reports.report import Provenance, Report, leaks_table
    from faithkit.reports.write_reports import ReportOptions, print_summary, suggest_after_generation, write_reports
    from faithkit_workflows.answering.strategies import choose_run_engine, load_answerer
    from faithkit_workflows.answering.write_answers import write_with_origin
    from faithkit_workflows.detectors.loading import describe_helpers

    log.info(choose_run_engine(run, config))
    sets = read_generation_inputs(config["data"], seed=config["seed"])
    generator, answerer = load_answerer(config, config["engine"]["name"])
    resamples = config["resample"] is not None
    helpers = {"detector": config["detector"], "entailment model": config["entailment"] if resamples else None}
    models = [describe_model(config["checkpoint"]), *describe_helpers(helpers)]
    log.info("model: %s; %s", config["checkpoint"], describe_runner(generator))
    reports: dict[str, list[Report]] = {}
    for name, examples in sets.items():
        by_id = write_with_origin(run, config, name, examples, answerer, models)
        answers = [by_id[example.id] for example in examples]
        origin = Provenance.of(name, examples, models)
        shown, limit = new_field_table(name), config["num_examples"]
        step = max(1, len(examples) // limit) if limit else 1
        for place in range(0, len(examples), step)[:limit]:  # evenly spaced over the data
            answer = answers[place]
            verdict = "" if answer.score is None else f"  ({answer.label}, P(hallucinated) {answer.score:.2f})"
            text = Text(f"{escape_terminal(answer.text, 400)}{verdict}")
            add_fields(shown, {**context_fields(examples[place]), "answer": text})
        leaks = [leaks_table(origin, f"{name}, leaks")] if origin.leaked.any() else []
        report = Report(
            metrics={},
            tables=(shown, *leaks),
            lines=origin.lines,
            alerts=origin.alerts,
            facts=origin.to_dict(),
            answers=list(zip(examples, answers, strict=True)),
        )
        reports[name] = [report]
    write_reports(run, reports, ReportOptions.of(config))
    print_summary(run, ReportOptions.of(config), suggest_after_generation(run, config))


def run() -> None:
    """Runs the command line."""
    run_script(main, "generate", __doc__ or "", GROUPS, SETTINGS)


if __name__ == "__main__":
    run()
