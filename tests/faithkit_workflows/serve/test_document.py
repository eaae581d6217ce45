"""The OpenAPI document: every route keeps to it, for valid and for invalid requests."""

from typing import Any

import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis import GenerationMode

from tests.faithkit_workflows.serve.running_server import RunningServer

pytestmark = pytest.mark.xdist_group("serve-routes")


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_route_keeps_to_the_document(server: RunningServer, mode: GenerationMode) -> None:
    document = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) >= 14
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query or operation.path_parameters):
            continue

        @given(operation.as_strategy(generation_mode=mode))
        @settings(max_examples=12)
        def check(case: Any) -> None:
            case.call_and_validate()

        check()
