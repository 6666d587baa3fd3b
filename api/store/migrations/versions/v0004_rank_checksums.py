"""Checksums of the worker that each rank of a plan belongs to, as all else that is served has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column. Programs and ranks that are there are dropped: they are made again when they are asked for.

    It may be empty, so that a server of the version before can go on until it is replaced. What that stores meanwhile
    counts as damaged, and is made again too.
    """
    op.add_column("ranks", sa.Column("checksum", sa.String(64), nullable=True))
    op.execute("DELETE FROM ranks")
    op.execute("DELETE FROM programs")
    op.execute("UPDATE replan_schema SET version = 4")
