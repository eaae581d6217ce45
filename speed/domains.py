"""Leave one domain out: each domain's figure comes from a model that saw neither it nor anything that shares with it.

The domains are those of configs/benchmark/domains.yaml (docs/domains.md). For each one the cheap baselines are fitted,
and critics trained, on the rows of the domains that share no texts, corpora or authors with it; settings, thresholds,
calibrations and checkpoints are chosen on those rows too. The dev half of each domain is tested; the other half is kept
for the end, and every look at it is counted.

python -m speed.domains --data FOLDER --out FOLDER                        the cheap baselines
python -m speed.domains --data FOLDER --out FOLDER --recipe 'long: model.num_epochs=3'   and a critic by this recipe
python -m speed.domains ... --evidence --not-from diahalu                 words, runs and tokens, nothing trained
python -m speed.domains ... --folds-only xsum                             the fold of one domain
python -m speed.domains ... --part held                                   the end: a look that is counted

Finished folds are kept as JSON: an interrupted run goes on, and recipes may be added later.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from faithkit.baselines.simple_detectors import Baseline
from faithkit.errors import UserError, choice_hint
from faithkit.metrics.results import full_names, write_results
from faithkit.pages.tables import format_metric, print_tables
from faithkit.records import Prediction
from faithkit.statistics.metric import Metric
from faithkit_workflows.domains.baselines import CHOSEN, DomainBaselines
from faithkit_workflows.domains.benchmark import looks_at, read_all
from faithkit_workflows.domains.features import Features
from faithkit_workflows.domains.recipes import COSINE, NLI, recipes_of
from faithkit_workflows.domains.report import domains_report
from faithkit_workflows.domains.rows import ALL, DEV, HELD, DomainRows
from faithkit_workflows.domains.tables import MEAN
from faithkit_workflows.domains.test_accesses import record_looks
from faithkit_workflows.domains.tested import DomainTest
from speed.domain_evidence import evidence_sides, learnt_from
from speed.domain_sides import Fold, make_folds, predict_baselines, predict_critic
from speed.measure import report, table

SHOWN = ("auroc", "macro_f1", "average_precision", "ece")


def main() -> None:
    """Runs the command, and tells a mistake of the user's without a traceback."""
    try:
        run(read_options())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def run(options: argparse.Namespace) -> None:
    """Predicts every fold with every side that is asked for, then scores all that there is."""
    definition = read_definition(options.data, options.set)
    check_names(options, definition["only"] or list(definition["domains"]))
    domains = read_all(definition)
    features = Features(options.out / "features", encoder=options.encoder)
    baselines = DomainBaselines(
        domains,
        features,
        nli=options.nli,
        max_fit_rows=options.max_fit_rows,
        only=options.baselines_only,
        not_from=options.not_from,
    )
    # A critic learns from all rows that there are, each domain capped by --max-train-rows.
    folds = [
        fold
        for fold in make_folds(domains, baselines.all_rows, options.part)
        if fold.name in (options.folds_only or domains)
    ]
    if options.evidence:
        for fold in folds:
            learnt_from(fold, options.not_from)  # refused before anything is fitted, and before a look is counted
    by = f"speed.domains {options.recipe or (options.evidence and 'evidence') or 'baselines'}"
    record_looks([fold.name for fold in folds], by, part=options.part, root=options.data)
    settings = {name: getattr(options, name) for name in ("part", "encoder", "nli", "set", "max_fit_rows")}
    if options.baselines_only:
        settings["only"] = options.baselines_only
    if options.not_from:
        settings["not_from"] = options.not_from
    cheap: dict[str, list[Baseline]] = {}
    for fold in folds:
        print(f"baselines without {fold.name}", file=sys.stderr, flush=True)
        cheap[fold.name] = predict_baselines(fold, baselines, settings, options.out)
    critics: dict[str, Mapping[str, Mapping[str, Prediction]]] = {
        recipe.partition(":")[0].strip(): {fold.name: predict_critic(fold, recipe, options) for fold in folds}
        for recipe in options.recipe
    }
    if options.evidence:
        critics["three votes"] = evidence_sides(
            folds,
            options.out / "evidence",
            weights=options.weights,
            precision=options.precision,
            not_from=options.not_from,
        )
    write_report(domains, folds, cheap, critics, options)


def read_options() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True, help="the folder of the corpora, or embedded")
    parser.add_argument("--out", required=True, type=Path, help="where folds are kept")
    parser.add_argument("--part", choices=(DEV, HELD, ALL), default=DEV, help="held and all are counted looks")
    parser.add_argument("--folds-only", nargs="+", help="run the folds of these domains alone")
    parser.add_argument("--recipe", action="append", default=[], help="'NAME: overrides of train.py', once or often")
    parser.add_argument(
        "--baselines-only", nargs="+", default=[], help="fit these alone: grams overlap word_regression"
    )
    parser.add_argument(
        "--evidence", action="store_true", help="words, runs and the weakest tokens of --weights as they come"
    )
    parser.add_argument("--not-from", nargs="+", default=[], help="domains that no side learns from")
    parser.add_argument("--encoder", help="of the cosine baseline; none leaves it out")
    parser.add_argument("--nli", help="an NLI model or a critic, for NLI alone")
    parser.add_argument(
        "--set", action="append", default=[], help="a key of evaluate.py: benchmark.domains.snli.nli=RUN"
    )
    parser.add_argument("--max-fit-rows", type=int, default=600, help="of each domain, for the baselines")
    parser.add_argument("--max-train-rows", type=int, help="of each domain, for a critic")
    parser.add_argument("--weights", default="minilm", help="that critics begin with; nli: the fold's NLI model")
    parser.add_argument("--precision", default="32-true", help="that critics predict in: bf16 is faster on new CPUs")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--no-report", action="store_true", help="print, and leave RESULTS.md as it is")
    return parser.parse_args()


def check_names(options: argparse.Namespace, domains: Sequence[str]) -> None:
    """Refuses names of domains and baselines that there are not; they would be left out in silence.

    Raises:
        UserError: There is one.
    """
    for argument in ("folds_only", "not_from"):
        for name in getattr(options, argument) or ():
            if name not in domains:
                problem = f"--{argument.replace('_', '-')} names no domain: {name!r}"
                raise UserError(problem, hint=choice_hint(name, domains))
    models = {COSINE: options.encoder, NLI: options.nli}
    at_hand = [recipe.key for recipe in recipes_of([name for name, model in models.items() if model])]
    for name in options.baselines_only:
        if name not in [recipe.key for recipe in recipes_of(list(models))]:
            raise UserError(f"--baselines-only names no baseline: {name!r}", hint=choice_hint(name, at_hand))
        if name not in at_hand:
            hint = f"give --encoder or --nli, or use {', '.join(at_hand)}"
            raise UserError(f"--baselines-only {name} reads what a model says, and none is given", hint=hint)


def read_definition(data: str, overrides: Sequence[str] = ()) -> dict:
    """Reads the domains as `evaluate.py benchmark=domains benchmark.path=DATA` does."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    from faithkit.settings.config_files import CONFIGS

    with initialize_config_dir(config_dir=str(CONFIGS), version_base="1.3"):
        cfg = compose("evaluate", overrides=["benchmark=domains", *overrides])
    block = OmegaConf.to_container(cfg.benchmark, resolve=True)
    assert isinstance(block, dict)
    return {**block, "path": data}


def write_report(
    domains: Mapping[str, DomainRows],
    folds: Sequence[Fold],
    cheap: Mapping[str, Sequence[Baseline]],
    critics: Mapping[str, Mapping[str, Mapping[str, Prediction]]],
    options: argparse.Namespace,
) -> None:
    """Shows each critic beside the baselines; without one, the baseline that is chosen inside beside all others."""
    sides = dict(critics)
    if not sides:
        sides = {CHOSEN: {name: one.predictions for name, own in cheap.items() for one in own if one.key == CHOSEN}}
    rows: dict[str, dict[str, Metric]] = {}
    for side, predictions in sides.items():
        tests = [
            DomainTest(
                name=fold.name,
                title=domains[fold.name].domain.title,
                examples=fold.tested.shown,
                predictions=predictions[fold.name],
                baselines=[one for one in cheap[fold.name] if one.key != side],
                beside=domains[fold.name].domain.beside,
                kin=domains[fold.name].domain.kin,
                seen=np.zeros(len(fold.tested), bool),
            )
            for fold in folds
            if fold.name in predictions
        ]
        found = domains_report(tests, title=f"{side}, {options.part}", num_resamples=options.resamples, num_examples=0)
        print_tables(*found.headline, *found.tables)
        print(*(f"note: {note}" for note in (*found.notes, *found.lines)), sep="\n")
        write_results(
            options.out / f"{side.replace(' ', '-')}-{options.part}.json",
            full_names("test", "domains", found.metrics),
            {
                "looks": looks_at(domains),
                "folds": {fold.name: list(fold.train) for fold in folds},
            },
        )
        rows |= {side: found.metrics}
    if not options.no_report:
        names = [fold.name for fold in folds] + [MEAN]
        body = [table(["side", *names], [line for side, own in rows.items() for line in lines_of(side, own, names)])]
        body.append(f"AUROC in percent, of the {options.part} halves, every side without the domain and its kin.")
        report("Domains: one left out at a time", "\n\n".join(body))


def lines_of(side: str, metrics: Mapping[str, Metric], names: Sequence[str]) -> list[list[str]]:
    """Writes the AUROC of a side, and of each baseline, in every domain and in the mean."""
    keys = {name.split("/")[1] for name in metrics if name.endswith("auroc") and name.count("/") == 1}
    lines = []
    for key in sorted(keys, key=lambda key: (key != "auroc", key)):
        cells = [format_metric(metrics.get(f"{name}/{key}"), digits=1, scale=100) for name in names]
        lines.append([side if key == "auroc" else key.removesuffix("_auroc"), *cells])
    return lines


if __name__ == "__main__":
    main()
