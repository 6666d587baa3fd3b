"""Scopes: every route stands in a rule, and what stands in none is closed."""

from __future__ import annotations

import pytest

from api.app import create_app
from api.security.scopes import Scope, required_access
from api.settings import Settings


def test_every_route_stands_in_a_rule() -> None:
    """Each operation of the service is listed, so its scope was thought about."""
    paths = create_app(Settings()).openapi()["paths"]
    operations = [(method.upper(), path) for path, item in paths.items() for method in item]
    assert operations
    assert [which for which in operations if not required_access(*which).is_listed] == []


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/healthz", None),
        ("HEAD", "/healthz", None),
        ("POST", "/healthz", Scope.ADMIN),
        ("GET", "/healthz/", Scope.ADMIN),
        ("GET", "/healthz\n", Scope.ADMIN),
        ("GET", "/readyz", Scope.READ),
        ("GET", "/metrics", Scope.READ),
        ("GET", "/openapi.json", Scope.READ),
        ("POST", "/v1/plans", Scope.REPORT),
        ("GET", "/v1/plans/0f/programs/3/5", Scope.READ),
        ("GET", "/v1/jobs", Scope.READ),
        ("GET", "/v1/jobs/llama", Scope.READ),
        ("PUT", "/v1/jobs/llama", Scope.ADMIN),
        ("DELETE", "/v1/jobs/llama", Scope.ADMIN),
        ("POST", "/v1/jobs/llama/events", Scope.REPORT),
        ("GET", "/v1/jobs/llama/epochs/current", Scope.READ),
        ("GET", "/v1/jobs/llama/epochs/3/programs/rank:17", Scope.READ),
        ("POST", "/v1/jobs/llama/epochs/3/acknowledgements", Scope.REPORT),
        ("GET", "/v1/jobs/llama/stream", Scope.READ),
        ("POST", "/v1/jobs/llama/precompute", Scope.ADMIN),
        ("POST", "/v1/operations/1/cancel", Scope.ADMIN),
        ("GET", "/v1/operations/1", Scope.READ),
        ("DELETE", "/v1/jobs/llama/epochs/3", Scope.ADMIN),
        ("GET", "/v1/secrets", Scope.ADMIN),
        ("GET", "/", None),
        ("GET", "/page/app.js", None),
        ("GET", "/page/a/b", Scope.ADMIN),
        ("POST", "/", Scope.ADMIN),
        ("GET", "/v1/overview", Scope.READ),
        ("GET", "/v1/overview/stream", Scope.READ),
        ("GET", "/v1/jobs/llama/cluster", Scope.READ),
        ("GET", "/v1/jobs/llama/heat", Scope.READ),
        ("GET", "/v1/jobs/llama/epochs/3/timeline", Scope.READ),
        ("GET", "/v1/jobs/llama/epochs/3/trace", Scope.READ),
        ("POST", "/v1/jobs/llama/what-if", Scope.READ),
        ("OPTIONS", "/v1/jobs", Scope.ADMIN),
        ("get", "/healthz", Scope.ADMIN),
    ],
)
def test_routes_ask_for_their_scope(method: str, path: str, scope: Scope | None) -> None:
    """Fetching asks for read, reporting for report, all else for admin; what is only like a listed route is not listed."""
    assert required_access(method, path).scope == scope
