"""What PostgreSQL tells all replicas when a transaction that appended an epoch is stored."""

from __future__ import annotations

import json

import sqlalchemy as sa

CHANNEL = "replan_epochs"


def notify(connection: sa.Connection, job_id: str, epoch: int) -> None:
    """Tell, with the transaction's commit, that a job has this epoch; 0 for a deleted job."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_notify(CHANNEL, json.dumps([job_id, epoch]))))


def read_notice(payload: str) -> tuple[str, int]:
    """Job and epoch of a notice."""
    job_id, epoch = json.loads(payload)
    return str(job_id), int(epoch)
