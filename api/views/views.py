"""Everything people look at, put together over what the service of jobs has."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections import OrderedDict

from anyio import to_thread

from api.jobs.acknowledging import Acknowledger
from api.jobs.drafting import Base
from api.jobs.loaded import JobCache
from api.jobs.materialiser import Materialiser
from api.jobs.solving import TemplateMaker
from api.jobs.templates import Templates
from api.jobs.watching import Watcher
from api.pool import SolvePool
from api.settings import Settings
from api.store import Store
from api.store.watch import EpochFeed
from api.views.cluster import cluster_of
from api.views.drawer import Drawer
from api.views.forms import Heat
from api.views.heat import heat_of
from api.views.overview import Overviews
from api.views.trial import Current, Trials

_MAX_CLUSTERS = 8


class Views:
    """What the page's routes ask.

    Parameters
    ----------
    store, pool, feed, jobs, templates, maker, materialiser, watcher, acknowledger
        Owned by the caller.
    current
        How the current epoch of a job is read, for its newest revision.
    settings
        Limits.
    """

    def __init__(
        self,
        *,
        store: Store,
        pool: SolvePool,
        feed: EpochFeed,
        jobs: JobCache,
        templates: Templates,
        maker: TemplateMaker,
        materialiser: Materialiser,
        watcher: Watcher,
        acknowledger: Acknowledger,
        current: Current,
        settings: Settings,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._current = current
        self._search_s = settings.event_deadline_s
        self._clusters: OrderedDict[tuple[str, int, str], bytes] = OrderedDict()
        self.overviews = Overviews(
            store=store,
            feed=feed,
            watcher=watcher,
            acknowledger=acknowledger,
            jobs=jobs,
            version=importlib.metadata.version("replan"),
        )
        self.drawer = Drawer(
            store=store,
            pool=pool,
            jobs=jobs,
            templates=templates,
            materialiser=materialiser,
            timeout_s=settings.solve_grace_s,
        )
        self.trials = Trials(
            current=current,
            templates=templates,
            maker=maker,
            event_deadline_s=settings.event_deadline_s,
            timeout_s=settings.queue_timeout_s,
        )

    async def close(self) -> None:
        """Give up what goes on for nobody."""
        await self.drawer.close()

    async def cluster(self, job_id: str, epoch: int | None = None) -> tuple[str, bytes]:
        """Tag and JSON of who runs where, in an epoch's revision of a job or the newest.

        Raises
        ------
        NotFoundError
            If there is no such job or epoch.
        """
        return await to_thread.run_sync(self._cluster, job_id, epoch)

    async def heat(self, job_id: str) -> Heat:
        """Which node hurts most; raises :class:`NotFoundError` where there is no such job."""
        record, loaded = await self._current(job_id)
        return await to_thread.run_sync(lambda: heat_of(self._store, loaded, Base.of(record), self._search_s))

    def _cluster(self, job_id: str, epoch: int | None) -> tuple[str, bytes]:
        if epoch is None:
            job = self._store.job(job_id)
            revision, document = job.revision, job.document
        else:
            revision = self._store.epoch(job_id, epoch).revision
            document = self._store.job_revision(job_id, revision).document
        loaded = self._jobs.load(document)
        # By the document and not by the job's hash, which names of nodes and racks are no part of.
        key = (job_id, revision, hashlib.sha256(loaded.document).hexdigest()[:32])
        content = self._clusters.get(key)
        if content is None:
            content = cluster_of(job_id, revision, loaded).model_dump_json().encode()
            self._clusters[key] = content
            while len(self._clusters) > _MAX_CLUSTERS:
                self._clusters.popitem(last=False)
        return f"{revision}-{key[2]}", content
