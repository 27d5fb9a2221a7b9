"""The OpenAPI document is true: schemathesis sends what it allows and what it forbids, and no answer is a 500."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import one_of
from schemathesis import GenerationMode

from penstock.server.app import create_app
from penstock.settings import Settings

SLOW = ("/v1/server/stop", "/v1/uploads")
schema = schemathesis.openapi.from_dict(create_app(Settings()).openapi()).exclude(path=list(SLOW))
OPERATIONS = [found.ok() for found in schema.get_all_operations()]


# Not schemathesis' own way to make a test of each: those have all the same name, and beside others only one is run.
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_no_request_makes_the_server_fail(operation, module_token):
    address, headers = module_token

    @given(case=one_of(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    def ask(case):
        if case.query and "wait" in case.query:
            case.query["wait"] = 0
        if case.query and "timeout" in case.query:
            case.query["timeout"] = 0
        answer = case.call(base_url=address, headers=headers)
        assert answer.status_code < 500, (answer.status_code, answer.text)

    ask()
