"""Every field of a job file."""

from __future__ import annotations

from pydantic import BaseModel

from cli.reference.markdown import code, head, table
from planner.formats.job_models import JobModel, LayoutModel, RecoveryModel, StageModel, TopologyModel

_INTRODUCTION = (
    "A job file is YAML or JSON. Times are microseconds, sizes are bytes that one GPU holds: an integer, or a text such as "
    '`"1.5 GiB"`. A field that is not listed here is an error. How to write one is told in '
    "[howto/describe-a-cluster.md](../howto/describe-a-cluster.md)."
)
_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("The file", JobModel),
    ("topology", TopologyModel),
    ("layout", LayoutModel),
    ("stage_costs, stages, stage_overrides", StageModel),
    ("recovery", RecoveryModel),
)


def job_file_page() -> str:
    """Text of the page."""
    sections = [f"## {title}\n\n{_fields(model)}\n" for title, model in _SECTIONS]
    return "\n".join([head("Job file", _INTRODUCTION), *sections])


def _fields(model: type[BaseModel]) -> str:
    rows = (
        (code(name), "yes" if field.is_required() else "", field.description or "")
        for name, field in model.model_fields.items()
    )
    return table(("field", "required", "what it is"), rows)
