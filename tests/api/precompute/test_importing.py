"""Importing templates: each plan proves what its header says before anything is stored."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from api.errors import TemplateFileError
from api.planning import HANDLERS
from api.precompute.importing import import_checked
from api.precompute.template import TemplateRequest, read_template
from api.store import ImportCounts, Store
from api.store.checksums import sha256_hex
from api.store.template_file import TemplateHeader, TemplateWriter
from planner.formats.packed_plan import pack_plan, unpack_plan
from planner.plan import PlanStatus
from tests.precomputing import DOCUMENT, SHA256


@pytest.fixture(scope="module")
def made() -> tuple[TemplateHeader, bytes]:
    """A template of one failure of the example, with what may be said of it."""
    name, *parts = TemplateRequest(failure_key="0,0,1,0", deadline_s=0.3).message(DOCUMENT)
    answer = read_template(HANDLERS[name](parts))
    header = TemplateHeader(
        job_sha256=SHA256,
        failure_key="0,0,1,0",
        sha256=sha256_hex(answer.content),
        size=len(answer.content),
        period_ns=answer.figures.period_ns,
        bound_ns=answer.figures.bound_ns,
        solver=answer.figures.solver,
        deadline_s=0.3,
    )
    return header, answer.content


def file_of(*templates: tuple[TemplateHeader, bytes]) -> io.BytesIO:
    """A whole file of templates."""
    stream = io.BytesIO()
    writer = TemplateWriter(stream)
    for header, content in templates:
        writer.add(header, content)
    writer.finish()
    stream.seek(0)
    return stream


def test_a_sound_plan_is_stored(store: Store, made: tuple[TemplateHeader, bytes]) -> None:
    """What was exported by one of us comes in, and each check is told."""
    told: list[int] = []
    assert import_checked(store, file_of(made), told.append) == ImportCounts(read=1, stored=1)
    assert told == [1]
    assert store.template(SHA256, "0,0,1,0") is not None


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"period_ns": 1}, "period in ns '1'; its plan has '27000'"),
        ({"bound_ns": 30_000}, "bound in ns"),
        ({"failure_key": "0,1,0,0"}, "failure key"),
        ({"job_sha256": "b" * 64}, "job hash"),
        ({"solver": "other"}, "solver"),
    ],
)
def test_a_header_that_lies_stores_nothing(
    store: Store, made: tuple[TemplateHeader, bytes], said: dict[str, Any], message: str
) -> None:
    """A file whose checksums are right, but whose header says of a plan what it is not, is refused whole."""
    header, content = made
    with pytest.raises(TemplateFileError, match=message):
        import_checked(store, file_of(made, (header.model_copy(update=said), content)))
    assert store.template_jobs() == ()


def test_a_plan_that_is_wrong_stores_nothing(store: Store, made: tuple[TemplateHeader, bytes]) -> None:
    """A packed plan with another period than its schedule has, and an id that is right, is refused by the checks."""
    header, content = made
    plan = unpack_plan(content)
    wrong = pack_plan(replace(plan, period_ns=plan.period_ns + 1000, status=PlanStatus.FEASIBLE))
    lying = header.model_copy(
        update={"sha256": sha256_hex(wrong), "size": len(wrong), "period_ns": plan.period_ns + 1000}
    )
    with pytest.raises(TemplateFileError, match="no valid plan"):
        import_checked(store, file_of((lying, wrong)))
    with pytest.raises(TemplateFileError, match="no valid plan"):
        import_checked(store, file_of((header.model_copy(update={"sha256": sha256_hex(b"x"), "size": 1}), b"x")))
    assert store.template_jobs() == ()
