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
    """Job and epoch of a notice.

    Raises
    ------
    ValueError
        If it is no notice of this module.
    """
    try:
        notice = json.loads(payload)
    except RecursionError as error:
        raise ValueError("a notice that is nested too deep") from error
    if not (isinstance(notice, list) and len(notice) == 2):
        raise ValueError("a notice that is no pair")
    job_id, epoch = notice
    if not (isinstance(job_id, str) and type(epoch) is int and epoch >= 0):
        raise ValueError("a notice without a job and an epoch")
    return job_id, epoch
