"""The OpenAPI document is true: schemathesis sends what it allows and what it forbids, and no answer is a 500."""

import schemathesis
from hypothesis import HealthCheck, settings

from penstock.server.app import create_app
from penstock.settings import Settings

schema = schemathesis.openapi.from_dict(create_app(Settings()).openapi())
SLOW = ("/v1/server/stop", "/v1/uploads")


@schema.exclude(path=list(SLOW)).parametrize()
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_makes_the_server_fail(case, module_token):
    address, headers = module_token
    if case.query and "wait" in case.query:
        case.query["wait"] = 0
    if case.query and "timeout" in case.query:
        case.query["timeout"] = 0
    answer = case.call(base_url=address, headers=headers)
    assert answer.status_code < 500, (answer.status_code, answer.text)
