"""What a template from somebody else's file has to prove before it is stored.

The file's own checksums tell only that nothing was damaged on the way. So each plan is read, and checked as strictly as one
of our own, and what its header says is compared with what the plan says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from api.errors import TemplateFileError
from api.store import ImportCounts, Store
from api.store.template_file import TemplateHeader
from planner.errors import InputError, ScheduleError
from planner.failure_key import failure_key
from planner.formats.packed_plan import unpack_plan
from planner.plan_check import check_plan


def import_checked(
    store: Store, stream: BinaryIO, on_checked: Callable[[int], None] = lambda _number: None
) -> ImportCounts:
    """Store the templates of a file, each unless a better one is there; see :meth:`api.store.Store.import_templates`.

    Parameters
    ----------
    store
        Where to.
    stream
        A binary stream that can be read twice.
    on_checked
        Called after each plan that was checked, with how many that makes.

    Raises
    ------
    TemplateFileError
        If the file is damaged or of another kind, or one of its plans is not what it says; nothing of it is stored then.
    StoreError
        If the store cannot take them.
    """
    num_checked = 0

    def check(header: TemplateHeader, content: bytes) -> None:
        nonlocal num_checked
        check_template(header, content)
        num_checked += 1
        on_checked(num_checked)

    return store.import_templates(stream, check)


def check_template(header: TemplateHeader, content: bytes) -> None:
    """Check a packed plan, and that its header says of it what it is.

    Raises
    ------
    TemplateFileError
        If the plan cannot be read, is not valid, or is another than its header says.
    """
    where = f"the template of failure key {header.failure_key[:80]!r}"
    hint = "nothing of the file was stored; precompute on a machine you trust and export it again"
    try:
        plan = unpack_plan(content)
        check_plan(plan)
    except (InputError, ScheduleError) as error:
        raise TemplateFileError(f"{where} is no valid plan: {error.message}", hint=hint) from error
    said = (header.job_sha256, header.failure_key, header.period_ns, header.bound_ns, header.solver)
    found = (plan.job_sha256, str(failure_key(plan.problem)), plan.period_ns, plan.bound_ns, plan.solver)
    names = ("job hash", "failure key", "period in ns", "bound in ns", "solver")
    for name, stated, value in zip(names, said, found, strict=True):
        if stated != value:
            raise TemplateFileError(
                f"{where} is said to have the {name} {str(stated)[:80]!r}; its plan has {str(value)[:80]!r}", hint=hint
            )
