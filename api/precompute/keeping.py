"""From a request for a template to the store: the one way in which searched templates are made, counted and kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anyio import to_thread

from api.observability.telemetry import Telemetry
from api.precompute.template import TemplateFigures, TemplateRequest, read_template
from api.store import Store


async def make_and_keep(
    request: TemplateRequest,
    *,
    job_sha256: str,
    document: bytes,
    run: Callable[[list[bytes]], Awaitable[list[bytes]]],
    store: Store,
    telemetry: Telemetry,
) -> TemplateFigures:
    """Have a template made, and store it unless a better one is there.

    Parameters
    ----------
    request
        What is asked for.
    job_sha256, document
        Hash of the job, and its document as JSON.
    run
        Has a message answered by a solver process.
    store
        Where the template is kept; it is there when this returns.
    telemetry
        Where the search is counted.

    Raises
    ------
    ReplanError
        If there is no plan, it cannot be made, or the store cannot take it.
    """
    with telemetry.solving() as found:
        answer = read_template(await run(request.message(document)))
        figures = answer.figures
        found.solver, found.gap = figures.solver, figures.gap
    await to_thread.run_sync(
        lambda: store.put_template(
            job_sha256=job_sha256,
            failure_key=request.failure_key,
            content=answer.content,
            period_ns=figures.period_ns,
            bound_ns=figures.bound_ns,
            solver=figures.solver,
            deadline_s=request.deadline_s,
        )
    )
    return figures
