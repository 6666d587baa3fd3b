"""Templates of the store as an event needs them; damaged ones are dropped, told, and made again."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from api.errors import CorruptStoreError
from api.jobs.loaded import LoadedJob
from api.observability.telemetry import Telemetry
from api.recent import Recent
from api.store import Store, TemplateRecord
from planner.errors import InputError, NotFoundError
from planner.formats.packed_plan import unpack_plan, unpack_template
from planner.template import Template
from solver_models.planning import Reference

_LOG = logging.getLogger("replan.api.jobs")
_MAX_KEPT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTemplate:
    """A stored template, its bytes and what they say."""

    record: TemplateRecord
    template: Template


class Templates:
    """The store's templates; safe to use from several threads.

    Parameters
    ----------
    store
        Where they are; owned by the caller.
    telemetry
        Where damage is counted.
    """

    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry
        self._kept: Recent[str, Template] = Recent(_MAX_KEPT)
        self._references: dict[str, Reference] = {}

    def best(self, job: LoadedJob, key: str) -> KnownTemplate | None:
        """Best template of a failure key; ``None`` where there is none, or where it was damaged: it is dropped then."""
        try:
            record = self._store.template(job.sha256, key)
            return None if record is None else self._known(job, record)
        except (CorruptStoreError, InputError) as error:
            self.drop(job, key, None, error)
            return None

    def version(self, job: LoadedJob, key: str, sha256: str) -> KnownTemplate | None:
        """The template that an epoch names; ``None`` where it is not there any more, or damaged: it is dropped then."""
        try:
            return self._known(job, self._store.template_version(job.sha256, key, sha256))
        except NotFoundError:
            return None
        except (CorruptStoreError, InputError) as error:
            self.drop(job, key, sha256, error)
            return None

    def drop(self, job: LoadedJob, key: str, sha256: str | None, error: Exception) -> None:
        """Drop a template that cannot be used, and say so; without ``sha256`` all of its key."""
        _LOG.error(
            "the template of failure key %s of job hash %s cannot be used and is made again: %s", key, job.sha256, error
        )
        self._telemetry.degraded("template_corrupt")
        self._store.drop_template(job.sha256, key, sha256)

    def reference(self, job: LoadedJob) -> Reference | None:
        """What the plans of a job are compared with; ``None`` until its fault-free template is there."""
        if job.sha256 not in self._references:
            known = self.best(job, str(job.fault_free_key))
            if known is None:
                return None
            plan = unpack_plan(known.record.content)
            if plan.baseline_1f1b_ns is None:
                return None
            if len(self._references) >= _MAX_KEPT:
                self._references.clear()
            self._references[job.sha256] = Reference(
                fault_free_ns=plan.fault_free_ns, baseline_1f1b_ns=plan.baseline_1f1b_ns
            )
        return self._references[job.sha256]

    def _known(self, job: LoadedJob, record: TemplateRecord) -> KnownTemplate:
        template = self._kept.get(record.sha256)
        if template is None:
            template = unpack_template(record.content)
        if template.job_sha256 != job.sha256 or str(template.failure_key) != record.failure_key:
            raise CorruptStoreError("the template is a plan of another job or other failures")
        self._kept.put(record.sha256, template)
        return KnownTemplate(record=record, template=template)
