"""Plans of requests for plans: content-addressed and append-only.

What is stored is never changed; what is damaged is dropped. Each document carries a checksum that binds it to the key it
stands under; reading compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from api.errors import CorruptStoreError
from api.store.checksums import document_checksum, row_checksum
from api.store.engine import Database
from api.store.schema import PLANS, PROGRAMS, RANKS, REQUESTS
from planner.errors import NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Stored bytes and the checksum they were stored with, 64 hexadecimal digits."""

    content: bytes
    sha256: str


class PlanRows(Database):
    """Plans, which request led to which plan, and the programs lowered from plans."""

    def add_plan(self, plan_id: str, *, content: bytes, summary: bytes, requests: Sequence[str]) -> bool:
        """Store a plan, and that these requests, by their digests, led to it; those that led to another one still do.

        Returns
        -------
        bool
            Whether the plan is new; where it is not, the stored bytes stay.

        Raises
        ------
        StoreError
            If it cannot be written; nothing of it is stored then.
        """

        def work(connection: sa.Connection) -> bool:
            is_new = self._insert_missing(
                connection,
                PLANS,
                plan_id=plan_id,
                content=content,
                content_sha256=document_checksum(content, plan_id, "plan"),
                summary=summary,
                summary_sha256=document_checksum(summary, plan_id, "summary"),
            )
            for digest in requests:
                self._insert_missing(connection, REQUESTS, request_sha256=digest, plan_id=plan_id)
            return is_new

        return self._write(work)

    def add_programs(self, plan_id: str, programs: Mapping[str, bytes], ranks: Mapping[str, str]) -> None:
        """Store the programs of all workers of a stored plan and the worker of each rank; those there already stay.

        Raises
        ------
        StoreError
            If they cannot be written; none is stored then.
        """
        rows = [
            {
                "plan_id": plan_id,
                "worker": worker,
                "content": content,
                "content_sha256": document_checksum(content, plan_id, f"program {worker}"),
            }
            for worker, content in sorted(programs.items())
        ]
        rank_rows = [
            {
                "plan_id": plan_id,
                "rank": rank,
                "worker": worker,
                "checksum": row_checksum("rank", plan_id, rank, worker),
            }
            for rank, worker in sorted(ranks.items())
        ]

        def work(connection: sa.Connection) -> None:
            for table, values in ((PROGRAMS, rows), (RANKS, rank_rows)):
                if values:
                    connection.execute(self._insert(table).on_conflict_do_nothing(), values)

        self._write(work)

    def drop_plan(self, plan_id: str) -> None:
        """Drop a plan with its programs, so that the requests that led to it lead to a new one."""

        def work(connection: sa.Connection) -> None:
            for table in (PROGRAMS, RANKS, REQUESTS, PLANS):
                connection.execute(table.delete().where(table.c.plan_id == plan_id))

        self._write(work)

    def drop_programs(self, plan_id: str) -> None:
        """Drop the programs of a plan, so that they are lowered again."""

        def work(connection: sa.Connection) -> None:
            for table in (PROGRAMS, RANKS):
                connection.execute(table.delete().where(table.c.plan_id == plan_id))

        self._write(work)

    def plan_id_of_request(self, request_sha256: str) -> str | None:
        """Id of the plan that a request led to before; ``None`` where there is none."""
        query = sa.select(REQUESTS.c.plan_id).where(REQUESTS.c.request_sha256 == request_sha256)
        plan_id = self._read(lambda connection: connection.execute(query).scalar_one_or_none())
        # On a damaged SQLite disk it may be no text.
        return plan_id if isinstance(plan_id, str) else None

    def plan(self, plan_id: str) -> Document:
        """Bytes of a plan file.

        Raises
        ------
        NotFoundError
            If no plan has this id.
        CorruptStoreError
            If the stored bytes are damaged.
        """
        query = sa.select(PLANS.c.content, PLANS.c.content_sha256).where(PLANS.c.plan_id == plan_id)
        return self._document(query, plan_id, "plan")

    def summary(self, plan_id: str) -> Document:
        """Bytes of a plan's summary; raises as :meth:`plan` does."""
        query = sa.select(PLANS.c.summary, PLANS.c.summary_sha256).where(PLANS.c.plan_id == plan_id)
        return self._document(query, plan_id, "summary")

    def program(self, plan_id: str, worker: str) -> Document:
        """Bytes of one worker's program; raises as :meth:`plan` does, also where it is not lowered yet."""
        query = sa.select(PROGRAMS.c.content, PROGRAMS.c.content_sha256).where(
            PROGRAMS.c.plan_id == plan_id, PROGRAMS.c.worker == worker
        )
        return self._document(query, plan_id, f"program {worker}")

    def worker_of_rank(self, plan_id: str, rank: str) -> str:
        """Worker, as ``pipeline/slot``, that a global rank belongs to.

        Raises
        ------
        NotFoundError
            If the plan's programs are not lowered yet, or it does not know the rank.
        CorruptStoreError
            If the stored row is damaged.
        """
        query = sa.select(RANKS.c.worker, RANKS.c.checksum).where(RANKS.c.plan_id == plan_id, RANKS.c.rank == rank)
        row = self._read(lambda connection: connection.execute(query).one_or_none())
        if row is None:
            raise NotFoundError(f"plan {plan_id[:80]!r} knows no rank {rank[:20]!r}")
        worker: str = row.worker
        if row_checksum("rank", plan_id, rank, worker) != row.checksum:
            raise self._damaged_plan(f"rank {rank}", plan_id)
        return worker

    def has_programs(self, plan_id: str) -> bool:
        """Whether the programs of a plan are stored."""
        query = sa.select(sa.literal(1)).where(PROGRAMS.c.plan_id == plan_id).limit(1)
        return self._read(lambda connection: connection.execute(query).scalar_one_or_none() is not None)

    def _document(self, query: sa.Select[Any], plan_id: str, kind: str) -> Document:
        row = self._read(lambda connection: connection.execute(query).one_or_none())
        if row is None:
            raise NotFoundError(f"there is no {kind} of plan {plan_id[:80]!r}" if kind != "plan" else _no_plan(plan_id))
        content, checksum = row
        if not isinstance(content, bytes) or document_checksum(content, plan_id, kind) != checksum:
            raise self._damaged_plan(kind, plan_id)
        return Document(content=content, sha256=checksum)

    def _damaged_plan(self, what: str, plan_id: str) -> CorruptStoreError:
        return CorruptStoreError(
            f"{self.name}: the stored {what} of plan {plan_id} does not match its checksum",
            hint="ask for the plan again, or restore the store from a copy",
        )


def _no_plan(plan_id: str) -> str:
    return f"there is no plan {plan_id[:80]!r}; plan ids are the 64 hexadecimal digits that POST /v1/plans answers"
