"""Everything about the service that its operator may choose: values from arguments, else the environment, else defaults.

The table in ``docs/settings.md`` is that of :func:`settings_table`; a test compares them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from planner.errors import OptionError

ENV_PREFIX = "REPLAN_"
MEBIBYTE = 2**20
DAY_S = 86_400

Seconds = Annotated[float, Field(gt=0, le=DAY_S, allow_inf_nan=False)]
LogLevel = Literal["critical", "error", "warning", "info", "debug"]
LogFormat = Literal["json", "text"]

_OTHER_VARIABLES = frozenset({"REPLAN_TRACEBACK", "REPLAN_SERVER", "REPLAN_API_KEY"})
"""Variables of the same prefix that the command line reads, not the service."""
_SECRET = frozenset({"store"})
"""Settings whose value an error must not repeat: a store's URL may hold a password."""


def default_solver_processes(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """One solver process for each CPU this process may use, less one for the web server, but at least 2.

    The second one searches in the background, at a lower priority, so that it costs the first and the server little.

    Parameters
    ----------
    quota
        Where Linux tells how much CPU time a container may take: it sees all CPUs of its machine, however few it may use.
    """
    num_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    with suppress(OSError, ValueError):
        allowed, period = quota.read_text(encoding="ascii").split()
        num_cpus = min(num_cpus, math.ceil(int(allowed) / int(period)))
    return max(2, num_cpus - 1)


class Settings(BaseSettings):
    """Limits and places of one server.

    An argument wins over the environment variable of the same name with the prefix ``REPLAN_`` in capitals, and that over the
    default. An empty variable counts as not set.

    Raises
    ------
    OptionError
        If a value is not what it should be; the message names the argument or the variable.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, validate_default=True
    )

    # Where it listens and what it keeps.
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on. Beyond loopback every request needs an API key.",
    )
    port: int = Field(default=8080, ge=0, le=65_535, description="Port to listen on; 0 for any free one.")
    store: str = Field(
        default="replan.db",
        min_length=1,
        description="File of the SQLite store, made when missing in a folder that exists, or the URL of a database: "
        "`sqlite:///FILE`, `postgresql://USER@HOST/NAME`. Give the password to PostgreSQL's own `PGPASSWORD` or `PGPASSFILE`.",
    )
    log_level: LogLevel = Field(default="info", description="Least severe records that are logged.")
    log_format: LogFormat = Field(default="json", description="One JSON object a line, or text for people.")

    # Who may ask.
    require_keys: bool = Field(default=False, description="Ask for API keys on loopback too.")
    admin_key_file: Path | None = Field(
        default=None,
        description="File that holds an admin key made by `replan keys generate`; added to the store when the server starts.",
    )
    trusted_proxies: str = Field(
        default="",
        description="Addresses or networks, separated by commas, of proxies whose `X-Forwarded-For` is believed.",
    )

    # How much one client may ask for.
    max_body_bytes: int = Field(default=16 * MEBIBYTE, ge=1024, le=2**30, description="Largest request body.")
    max_header_bytes: int = Field(
        default=64 * 1024, ge=1024, le=MEBIBYTE, description="Most bytes of a request's line and headers."
    )
    max_connections: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Most open connections; each long poll and each stream is one. The limit on open files may allow fewer.",
    )
    max_connections_per_address: int = Field(
        default=8_000, ge=1, le=1_000_000, description="Most open connections of one address."
    )
    read_rate: int = Field(
        default=100_000,
        ge=0,
        le=10**9,
        description="Most GET requests a minute of one key, or address without keys; 0: no limit.",
    )
    change_rate: int = Field(
        default=30_000,
        ge=0,
        le=10**9,
        description="Most other requests a minute of one key, or address without keys; 0: no limit.",
    )
    refusal_rate: int = Field(
        default=120,
        ge=0,
        le=10**9,
        description="Most requests a minute of one address with a key that is missing or wrong; 0: no limit.",
    )

    # How slow one client may be.
    header_timeout_s: Seconds = Field(
        default=10.0,
        description="Seconds in which a request's headers must arrive, from the start of the connection or request.",
    )
    body_timeout_s: Seconds = Field(default=60.0, description="Seconds in which a request's body must arrive.")
    write_timeout_s: Seconds = Field(
        default=60.0, description="Seconds a client may leave an answer unread before its connection is cut."
    )
    keep_alive_s: Seconds = Field(default=30.0, description="Seconds a connection may stay open without a request.")

    # Solving.
    solver_processes: int = Field(
        default_factory=default_solver_processes,
        ge=1,
        le=256,
        description="Processes that solve, each one request at a time. With 2 or more, one is kept for failures alone, so that "
        "one whose plan is not ready need not wait; with 1 it ends whatever is searched for and waits for a new process.",
    )
    queue_limit: int = Field(
        default=64,
        ge=0,
        le=100_000,
        description="Most requests that wait for a solver process; further ones are answered 503.",
    )
    queue_timeout_s: Seconds = Field(
        default=120.0, description="Seconds a request waits for a solver process before it is answered 503."
    )
    max_deadline_s: Seconds = Field(default=60.0, description="Longest search, in seconds, that a client may ask for.")
    solve_grace_s: Seconds = Field(
        default=60.0,
        description="Seconds beyond its deadline after which a solver process is killed. Covers reading the job, validation and "
        "replay, none of which the deadline limits.",
    )
    warm_up_timeout_s: Seconds = Field(
        default=300.0, description="Seconds a solver process may take to start and compile its code."
    )

    # Epochs.
    improvement_threshold: float = Field(
        default=0.01,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Relative gain in the period from which a better plan for the same failures becomes a new epoch.",
    )

    event_deadline_s: Seconds = Field(
        default=0.25, description="Seconds to search for a plan that was not ready when a failure was reported."
    )
    improvement_deadline_s: Seconds = Field(
        default=20.0, description="Seconds to search in the background for a better plan than that in force."
    )
    heartbeat_s: Seconds = Field(
        default=15.0, description="Seconds of silence after which an event stream sends a comment."
    )
    ray_address: str = Field(
        default="",
        pattern=r"^(ray://[^\s/?#@]+:[0-9]{1,5})?$",
        description="Ray cluster that plans are precomputed on, `ray://HOST:10001`, instead of in solver processes here; "
        "empty: none.",
    )
    operation_lease_s: Seconds = Field(
        default=30.0,
        description="Seconds after which an operation of a server that died is taken up by another one, or by its successor.",
    )

    # What is kept.
    retention_days: int = Field(
        default=90,
        ge=0,
        le=36_500,
        description="Days after which these are deleted: epochs, with the reports and idempotency keys that led to them; ended "
        "operations; plans of `POST /v1/plans` that nobody asked for since; plans made ready for jobs that are not registered "
        "any more. 0: never.",
    )
    retained_epochs: int = Field(
        default=1000, ge=10, le=2**31 - 1, description="Newest epochs of each job that are kept whatever their age."
    )
    retained_acknowledgements: int = Field(
        default=100, ge=1, le=2**31 - 1, description="Newest epochs of each job whose acknowledgements are kept."
    )

    # Ending.
    drain_delay_s: float = Field(
        default=0.0,
        ge=0,
        le=600,
        allow_inf_nan=False,
        description="Seconds between being told to stop and no longer listening, in which `/readyz` says 503 and load balancers "
        "look elsewhere.",
    )
    shutdown_grace_s: Seconds = Field(
        default=10.0,
        description="Seconds that requests being answered get to finish once the server no longer listens.",
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise OptionError(_fault(error, values), hint="docs/settings.md lists what may be set") from error


def variable_of(name: str) -> str:
    """Environment variable of a setting."""
    return f"{ENV_PREFIX}{name.upper()}"


def unknown_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Variables with our prefix that nothing reads, such as a misspelt one; sorted."""
    known = _OTHER_VARIABLES | {variable_of(name) for name in Settings.model_fields}
    return tuple(sorted(name for name in environment if name.startswith(ENV_PREFIX) and name not in known))


def settings_table() -> list[tuple[str, str, str, str]]:
    """Variable, default, range and description of every setting, in the order of the class."""
    return [
        (variable_of(name), _default_text(field), _range_text(field), str(field.description))
        for name, field in Settings.model_fields.items()
    ]


def _default_text(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "one a CPU less one, at least 2"
    if field.default is None or field.default == "":
        return "not set"
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def _range_text(field: FieldInfo) -> str:
    if field.annotation is bool:
        return "true, false"
    choices = get_args(field.annotation)
    if choices and all(isinstance(choice, str) for choice in choices):
        return ", ".join(choices)
    limits = {
        kind: getattr(bound, kind) for bound in field.metadata for kind in ("ge", "gt", "le") if hasattr(bound, kind)
    }
    if "le" not in limits:
        return ""
    low = f"above {limits['gt']}" if "gt" in limits else str(limits["ge"])
    return f"{low} to {limits['le']}"


def _fault(error: ValidationError, values: Mapping[str, Any]) -> str:
    """First fault of a validation error, with the name its reader knows: the argument's or the variable's."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "the settings"
    source = name if name in values else variable_of(name)
    found = "" if name in _SECRET else f" is {first['input']!r}"[:100]
    return f"{source}{found}: {first['msg']}"
