"""Audit a detector: is it accurate, does it see changes, do its verdicts depend on what must not matter?

faithkit audit default                                       on built-in documents: minutes, no labels needed
faithkit audit default documents=FOLDER                      on your documents (.txt, .md)
faithkit audit runs/... documents=FOLDER rows=labelled.csv   with accuracy beside simple baselines, and calibration
faithkit audit default benchmark=begin benchmark.path=FILE   on a public dataset
faithkit audit my_module:my_function                         a function: a list of dicts in, probabilities out
faithkit audit http://localhost:8000                         a server with the protocol of LettuceDetect or OpenAI
faithkit audit resume=runs/...                               continue after an interruption

It writes audit.html, audit.json and all answers into a run's folder. docs/guides/auditing.md explains the result.
"""

from functools import partial
from typing import Any

from faithkit.cli import as_override, run_script

# What a resumed run may change: the limits.
MAY_CHANGE = ("max_seconds", "row_seconds", "batch_size", "api_key_variable")
GROUPS = ("benchmark",)
SETTINGS = "faithkit_workflows.settings.reporting:AuditSettings"
REPORT = "audit.json"


def main(cfg: Any) -> None:
    """Opens the run's folder, audits, and writes page and figures.

    Raises:
        UserError: The detector gave no verdict at all.
    """
    from faithkit.errors import UserError
    from faithkit.files.atomic import write_json
    from faithkit.files.open_run import open_run
    from faithkit.files.run_folder import log_to
    from faithkit.packages import environment
    from faithkit_workflows.settings.reporting import AuditSettings

    with open_run(cfg, "audit", AuditSettings, may_change=MAY_CHANGE) as (run, config):
        log_to(run.log)
        from faithkit_workflows.audit.audit_page import report_audit
        from faithkit_workflows.audit.protocol import run_audit
        from faithkit_workflows.audit.target import open_target

        audit = run_audit(open_target(config), run.path, config)
        facts = {"config": config, "environment": environment()}
        write_json(run.path / REPORT, audit.to_dict() | facts)
        report_audit(run.path, audit)
        if not audit.answers:
            raise UserError(audit.headline, hint="correct the detector, then audit again")


def run() -> None:
    """Runs the command line."""
    run_script(main, "audit", __doc__ or "", GROUPS, SETTINGS, prepare=partial(as_override, key="target"))
