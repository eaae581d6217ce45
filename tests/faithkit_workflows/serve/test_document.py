"""The OpenAPI document: every route keeps to it, for valid and for invalid requests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from faithkit_workflows.serve import app
from faithkit_workflows.serve.jobs import SUFFIXES
from tests.faithkit_workflows.serve.running_server import RunningServer, run_server

pytestmark = pytest.mark.xdist_group("serve-document")
# Bodies with rules that JSON Schema cannot state: lines of JSON, two lists of one length, the formats of messages.
WITH_RULES = ("/v1/check/stream", "/score", "/v1/score", "/v1/chat/completions", "/v1/jobs")
ACCEPTANCE = [positive_data_acceptance]


@schemathesis.serializer(*SUFFIXES, app.LINES)
def write_bytes(context: Any, value: Any) -> bytes:
    """Writes the body of a table or of JSON lines."""
    binary = getattr(value, "data", value)
    return binary if isinstance(binary, bytes) else str(binary).encode("utf-8", "replace")


@pytest.fixture(scope="module")
def documented(default_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of its own: its jobs do not delay those of other tests."""
    jobs = f"jobs_dir={tmp_path_factory.mktemp('jobs')}"
    with run_server(f"checkpoint='default:{default_file}'", jobs, "max_rows=40") as server:
        yield server


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("num_cases", [6, pytest.param(400, marks=pytest.mark.slow)])
def test_every_route_keeps_to_the_document(documented: RunningServer, mode: GenerationMode, num_cases: int) -> None:
    document = schemathesis.openapi.from_url(f"{documented.url}/openapi.json")
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) >= 12
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query or operation.path_parameters):
            continue  # nothing can be wrong

        @given(operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=4 if operation.path == "/v1/jobs" else num_cases,
            derandomize=num_cases == 6,  # the fast test draws the same cases in each run
            suppress_health_check=list(HealthCheck),
        )
        def check(case: Any) -> None:
            has_rules = operation.path in WITH_RULES or (isinstance(case.body, dict) and "messages" in case.body)  # noqa: B023
            case.call_and_validate(excluded_checks=ACCEPTANCE if has_rules else [])

        check()
