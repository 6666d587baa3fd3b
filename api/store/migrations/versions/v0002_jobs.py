"""Jobs, epochs, events, acknowledgements, templates, operations and API keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_JOB_ID = sa.String(200).with_variant(sa.String(200, collation="C"), "postgresql")


def upgrade() -> None:
    """Make the tables, and let versions from before the migrations see that the store is not theirs any more."""
    _make_jobs()
    _make_epochs()
    op.create_table(
        "templates",
        sa.Column("job_sha256", sa.String(64), primary_key=True),
        sa.Column("key_sha256", sa.String(64), primary_key=True),
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("failure_key", sa.Text, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("period_ns", sa.BigInteger, nullable=False),
        sa.Column("bound_ns", sa.BigInteger, nullable=False),
        sa.Column("solver", sa.String(64), nullable=False),
        sa.Column("deadline_s", sa.Float, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "operations",
        sa.Column("operation_id", sa.String(64), primary_key=True),
        _of_job(nullable=True),
        sa.Column("job_sha256", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("tolerance", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("total", sa.Integer, nullable=True),
        sa.Column("done", sa.Integer, nullable=False),
        sa.Column("failed", sa.Integer, nullable=False),
        sa.Column("skipped", sa.Integer, nullable=False),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("owner", sa.String(200), nullable=True),
        sa.Column("lease_until", sa.BigInteger, nullable=True),
        sa.Column("error", sa.Text, nullable=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("options", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_operations_job_id", "operations", ["job_id"])
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("scopes", sa.String(200), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger, nullable=True),
    )
    op.execute("UPDATE replan_schema SET version = 2")


def _of_job(*, primary_key: bool = False, nullable: bool = False) -> sa.Column[str]:
    job = sa.ForeignKey("jobs.job_id", ondelete="CASCADE")
    return sa.Column("job_id", _JOB_ID, job, primary_key=primary_key, nullable=nullable)


def _of_epoch() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["job_id", "epoch"], ["epochs.job_id", "epochs.epoch"], ondelete="CASCADE")


def _make_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("job_id", _JOB_ID, primary_key=True),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("current_epoch", sa.Integer, nullable=False),
        sa.Column("last_epoch", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "retired_jobs",
        sa.Column("job_id", _JOB_ID, primary_key=True),
        sa.Column("last_epoch", sa.Integer, nullable=False),
    )
    op.create_table(
        "job_revisions",
        _of_job(primary_key=True),
        sa.Column("revision", sa.Integer, primary_key=True),
        sa.Column("job_sha256", sa.String(64), nullable=False),
        sa.Column("tolerance", sa.Integer, nullable=False),
        sa.Column("mode", sa.String(16), nullable=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )


def _make_epochs() -> None:
    op.create_table(
        "epochs",
        _of_job(primary_key=True),
        sa.Column("epoch", sa.Integer, primary_key=True),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("cause", sa.String(16), nullable=False),
        sa.Column("failure_key", sa.Text, nullable=True),
        sa.Column("template_sha256", sa.String(64), nullable=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.String(32), nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_epochs_template_sha256", "epochs", ["template_sha256"])
    op.create_table(
        "events",
        sa.Column("job_id", _JOB_ID, primary_key=True),
        sa.Column("epoch", sa.Integer, primary_key=True),
        sa.Column("idempotency_key", sa.String(256), nullable=True),
        sa.Column("request_sha256", sa.String(64), nullable=True),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("event", sa.LargeBinary, nullable=True),
        _of_epoch(),
        sa.UniqueConstraint("job_id", "idempotency_key", name="uq_events_idempotency_key"),
    )
    op.create_table(
        "acknowledgements",
        sa.Column("job_id", _JOB_ID, primary_key=True),
        sa.Column("epoch", sa.Integer, primary_key=True),
        sa.Column("worker", sa.String(24), primary_key=True),
        sa.Column("iteration", sa.BigInteger, nullable=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        _of_epoch(),
    )
