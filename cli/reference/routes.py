"""Every route of the service, from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from api.app import create_app
from api.settings import Settings
from cli.reference.markdown import code, head, plain, table

_INTRODUCTION = (
    "Every route with its parameters and answers, as `GET /openapi.json` tells them to programs, and the scope of the key that "
    "each asks for where the service asks for keys. Sessions are in [api.md](../api.md), error codes in [errors.md](errors.md)."
)
_LIMITS = (("minimum", "from {}"), ("exclusiveMinimum", "above {}"), ("maximum", "to {}"), ("default", "default {}"))


def routes_page() -> str:
    """Text of the page."""
    paths = create_app(Settings(require_keys=True)).openapi()["paths"]
    operations = [(method.upper(), path, item[method]) for path, item in paths.items() for method in item]
    sections = [
        f"## {tag}\n\n" + "\n".join(_section(*operation) for operation in group)
        for tag, group in groupby(sorted(operations, key=lambda each: _tag(each[2])), key=lambda each: _tag(each[2]))
    ]
    return "\n".join([head("Routes", _INTRODUCTION), *sections])


def _tag(operation: Mapping[str, Any]) -> str:
    return str(operation["tags"][0])


def _section(method: str, path: str, operation: Mapping[str, Any]) -> str:
    scope = operation.get("x-replan-scope")
    lines = [
        f"### {method} {path}",
        plain(operation.get("description") or operation["summary"]),
        f"Scope `{scope}`." if scope else "No key.",
    ]
    body = operation.get("requestBody")
    if body:
        lines.append(f"Body: {_content(body['content'])}.")
    if operation.get("parameters"):
        lines.append(table(("parameter", "in", "what it is"), map(_parameter, operation["parameters"])))
    lines.append(table(("status", "answer"), map(_answer, sorted(operation["responses"].items()))))
    return "\n\n".join(lines) + "\n"


def _parameter(parameter: Mapping[str, Any]) -> tuple[str, str, str]:
    schema = parameter.get("schema", {})
    limits = ", ".join(text.format(schema[name]) for name, text in _LIMITS if schema.get(name) is not None)
    text = parameter.get("description", "").rstrip(".")
    return code(parameter["name"]), parameter["in"], f"{text}; {limits}" if limits else text


def _answer(answer: tuple[str, Mapping[str, Any]]) -> tuple[str, str]:
    status, what = answer
    content = what.get("content", {})
    is_plain = not content or "application/problem+json" in content
    return status, what["description"] if is_plain else f"{what['description'].rstrip('.')}: {_content(content)}."


def _content(content: Mapping[str, Any]) -> str:
    return ", ".join(_media(name, what.get("schema", {})) for name, what in content.items())


def _media(name: str, schema: Mapping[str, Any]) -> str:
    forms = _forms([schema])
    return f"`{name}` with {' or '.join(map(code, forms))}" if forms else code(name)


def _forms(schemas: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of the forms that a schema refers to directly."""
    found: list[str] = []
    for schema in schemas:
        if "$ref" in schema:
            found.append(schema["$ref"].rpartition("/")[2])
        found += _forms([*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else [])])
    return found
