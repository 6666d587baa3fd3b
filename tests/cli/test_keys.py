"""The command that makes, lists and revokes API keys, on a real store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api.security.keys import parse_key
from api.security.scopes import Scope
from api.security.stored_keys import look_up
from api.store import Store
from cli.main import run


class Bench:
    """Runs ``replan keys`` on one store."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self._capsys = capsys

    def __call__(self, *words: str, status: int = 0) -> str:
        """Output of a command that ends with this status."""
        found = run(["keys", *words])
        captured = self._capsys.readouterr()
        assert found == status, captured.err
        return captured.err if status else captured.out

    def json(self, *words: str, status: int = 0) -> Any:
        """The object that a command prints."""
        return json.loads(self(*words, "--json", status=status))


@pytest.fixture
def keys(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The command, with the store named by the environment."""
    monkeypatch.setenv("REPLAN_STORE", str(tmp_path / "replan.db"))
    return Bench(tmp_path / "replan.db", capsys)


def test_a_key_is_made_listed_and_revoked(keys: Bench) -> None:
    """The key is printed once, the list never shows it, and once revoked it holds no more."""
    made = keys.json("create", "--name", "lab 3", "--scope", "report")
    key = parse_key(made["key"])
    assert key is not None
    assert (made["key_id"], made["name"], made["scope"]) == (key.key_id, "lab 3", "report")
    store = Store(str(keys.path))
    try:
        stored = look_up(store, key.key_id)
        assert stored is not None
        assert (stored.principal.scope, stored.digest) == (Scope.REPORT, key.digest)
        (row,) = keys.json("list")["keys"]
        assert (row["key_id"], row["scope"], row["revoked_at"]) == (key.key_id, "report", None)
        assert key.text not in keys("list")
        assert keys.json("revoke", key.key_id)["revoked_at"]
        assert look_up(store, key.key_id) is None
        assert "revoked" in keys("list")
    finally:
        store.close()


def test_the_text_forms_are_for_scripts_and_people(keys: Bench) -> None:
    """Making prints the key alone, so that a script may take it; revoking says what it did."""
    key = parse_key(keys("create", "--name", "a", "--scope", "read").strip())
    assert key is not None
    assert keys("list").split()[:2] == [key.key_id, "read"]
    assert key.key_id in keys("revoke", key.key_id)


def test_a_generated_key_is_in_no_store(keys: Bench) -> None:
    """``generate`` touches no store and makes another key each time."""
    first, second = keys("generate").strip(), keys.json("generate")["key"]
    assert parse_key(first) is not None
    assert parse_key(second) is not None
    assert first != second
    assert not keys.path.exists()


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("create", "--name", "", "--scope", "read"), 2, "option_invalid"),
        (("create", "--name", "a\nb", "--scope", "read"), 2, "option_invalid"),
        (("create", "--name", "a" * 201, "--scope", "read"), 2, "option_invalid"),
        (("create", "--name", "a", "--scope", "root"), 2, "usage"),
        (("create", "--scope", "read"), 2, "usage"),
        (("revoke", "abcdefghijkl"), 3, "not_found"),
        (("revoke", ""), 3, "not_found"),
        (("list", "--store", "/nonexistent/replan.db"), 7, "store_failed"),
        (("list", "--store", "mysql://db/replan"), 2, "option_invalid"),
    ],
)
def test_wrong_words_are_told(keys: Bench, words: tuple[str, ...], status: int, code: str) -> None:
    """Each kind of mistake has its status and code, and makes no key."""
    Store(str(keys.path)).close()
    assert keys.json(*words, status=status)["code"] == code
    assert keys.json("list")["keys"] == []


@pytest.mark.parametrize("words", [("list",), ("revoke", "abcdefghijkl")])
def test_a_store_that_is_not_there_is_told_and_not_made(keys: Bench, words: tuple[str, ...]) -> None:
    """Looking at a backup that was never written, or is empty, fails; so a check of backups can."""
    assert keys.json(*words, status=7)["code"] == "store_failed"
    assert not keys.path.exists()
    keys.path.touch()
    assert "there is no store" in keys.json(*words, status=7)["detail"]
    assert keys.path.read_bytes() == b""
