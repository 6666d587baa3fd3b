"""What the gate does, told in the OpenAPI document: keys, the scope each operation asks for, and the answers of refusals."""

from __future__ import annotations

from typing import Any

from api.responses import problems
from api.security.scopes import Scope, required_access

_SCHEME = "ApiKey"


def describe_access(document: dict[str, Any], *, has_keys: bool) -> None:
    """Add to each operation of an OpenAPI document what the gate may answer, and what it asks for; changes it in place.

    Parameters
    ----------
    document
        The document.
    has_keys
        Whether this server asks for keys.
    """
    if has_keys:
        description = "An API key, `Authorization: Bearer rpk_...`, of the scope that the operation names."
        scheme = {"type": "http", "scheme": "bearer", "description": description}
        document["components"].setdefault("securitySchemes", {})[_SCHEME] = scheme
    for path, item in document["paths"].items():
        for method, operation in item.items():
            access = required_access(method.upper(), path)
            if access.scope is None:
                continue
            # Every key may read; without keys it is the host's name that may be refused.
            may_be_forbidden = not has_keys or access.scope > Scope.READ
            statuses = [401] * has_keys + [403] * may_be_forbidden + [429]
            for status, answer in problems(*statuses).items():
                operation["responses"].setdefault(str(status), answer)
            if "requestBody" in operation:
                operation["responses"].setdefault("408", problems(408)[408])
            if has_keys:
                operation["security"] = [{_SCHEME: []}] + ([{}] if access.is_open_on_loopback else [])
                operation["x-replan-scope"] = access.scope.label
