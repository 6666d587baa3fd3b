"""When plans, and the templates of a job hash, were last of use, so that those of no use can go."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table. Whatever is stored already is taken for just used, once somebody looks."""
    op.create_table(
        "uses",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("used_at", sa.BigInteger, nullable=False),
    )
    op.execute("UPDATE replan_schema SET version = 3")
