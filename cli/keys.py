"""``replan keys``: make, list and revoke the API keys of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli.errors import ExitCode
from cli.parameters import json_option
from cli.stores import opened_store, store_option

if TYPE_CHECKING:
    from api.store import ApiKeyRecord


@click.group(short_help="Make, list and revoke API keys.")
def keys() -> None:
    """Make, list and revoke the API keys of a store; a running server on it takes part at once.

    A key has a scope: `read` fetches jobs, epochs, programs and metrics; `report` also reports failures, acknowledges epochs
    and asks for plans; `admin` also registers jobs and starts operations.
    """


@keys.command(short_help="Make a key.")
@store_option
@click.option("--name", required=True, help="What the key is for.")
@click.option("--scope", type=click.Choice(["read", "report", "admin"]), required=True, help="What it allows.")
@json_option
def create(store: str | None, name: str, scope: str, as_json: bool) -> int:
    """Make a key and print it, this once: the store keeps what can check it, not the key."""
    from api.security.scopes import scope_named
    from api.security.stored_keys import create_key

    wanted = scope_named(scope)
    assert wanted is not None
    with opened_store(store) as opened:
        key = create_key(opened, name=name, scope=wanted)
    if as_json:
        _print({"key_id": key.key_id, "name": name, "scope": scope, "key": key.text})
    else:
        click.echo(key.text)
    return ExitCode.OK


@keys.command("list", short_help="List the keys.")
@store_option
@json_option
def list_(store: str | None, as_json: bool) -> int:
    """List all keys, revoked ones too, oldest first."""
    with opened_store(store, must_exist=True) as opened:
        rows = [_row(record) for record in opened.list_keys()]
    if as_json:
        _print({"keys": rows})
    for row in [] if as_json else rows:
        state = f"revoked {row['revoked_at']}" if row["revoked_at"] else "holds"
        click.echo(f"{row['key_id']}  {row['scope'] or '-':6}  {row['created_at']}  {state}  {row['name']}")
    return ExitCode.OK


@keys.command(short_help="Revoke a key.")
@store_option
@click.argument("key_id")
@json_option
def revoke(store: str | None, key_id: str, as_json: bool) -> int:
    """Make a key cease to hold; servers refuse it within 10 s."""
    with opened_store(store, must_exist=True) as opened:
        record = opened.revoke_key(key_id)
    if as_json:
        _print(_row(record))
    else:
        click.echo(f"{record.key_id} ({record.name}) holds no more")
    return ExitCode.OK


@keys.command(short_help="Make a key for REPLAN_ADMIN_KEY_FILE.")
@json_option
def generate(as_json: bool) -> int:
    """Print a new key that no store knows yet; put it into the file that REPLAN_ADMIN_KEY_FILE names."""
    from api.security.keys import new_key

    key = new_key()
    if as_json:
        _print({"key_id": key.key_id, "key": key.text})
    else:
        click.echo(key.text)
    return ExitCode.OK


def _row(record: ApiKeyRecord) -> dict[str, Any]:
    from api.security.stored_keys import scope_of

    scope = scope_of(record)
    return {
        "key_id": record.key_id,
        "name": record.name,
        "scope": None if scope is None else scope.label,
        "created_at": record.created_at.isoformat(timespec="seconds"),
        "revoked_at": None if record.revoked_at is None else record.revoked_at.isoformat(timespec="seconds"),
    }


def _print(document: dict[str, Any]) -> None:
    from cli.output import print_json

    print_json(document)
