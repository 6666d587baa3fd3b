"""Fixtures that tests of several packages share."""

from tests.postgres import postgres, postgres_server

__all__ = ["postgres", "postgres_server"]
