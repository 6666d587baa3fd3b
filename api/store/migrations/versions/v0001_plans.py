"""Plans, requests, programs and ranks: the schema of stores from before the migrations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table("replan_schema", sa.Column("version", sa.Integer, nullable=False))
    op.create_table(
        "plans",
        sa.Column("plan_id", sa.String(64), primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("content_sha256", sa.String(64), nullable=False),
        sa.Column("summary", sa.LargeBinary, nullable=False),
        sa.Column("summary_sha256", sa.String(64), nullable=False),
    )
    op.create_table(
        "requests",
        sa.Column("request_sha256", sa.String(64), primary_key=True),
        sa.Column("plan_id", sa.String(64), sa.ForeignKey("plans.plan_id"), nullable=False),
    )
    op.create_table(
        "programs",
        sa.Column("plan_id", sa.String(64), sa.ForeignKey("plans.plan_id"), primary_key=True),
        sa.Column("worker", sa.String(24), primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("content_sha256", sa.String(64), nullable=False),
    )
    op.create_table(
        "ranks",
        sa.Column("plan_id", sa.String(64), sa.ForeignKey("plans.plan_id"), primary_key=True),
        sa.Column("rank", sa.String(12), primary_key=True),
        sa.Column("worker", sa.String(24), nullable=False),
    )
    op.execute("INSERT INTO replan_schema (version) VALUES (1)")
