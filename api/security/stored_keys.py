"""API keys in the store: make, check, and see to it that a server has one before it listens to others."""

from __future__ import annotations

from api.security.addresses import is_loopback
from api.security.authenticator import Principal, StoredKey
from api.security.keys import ApiKey, new_key, read_key
from api.security.scopes import Scope, scope_named
from api.settings import Settings
from api.store import ApiKeyRecord, Store
from planner.errors import OptionError

FILE_KEY_NAME = "admin key file"
FIRST_KEY_NAME = "first key"


def needs_keys(settings: Settings) -> bool:
    """Whether a server with these settings asks for keys: always, but for one that only this machine can reach."""
    return settings.require_keys or not is_loopback(settings.host)


def scope_of(record: ApiKeyRecord) -> Scope | None:
    """Largest scope of a stored key; ``None`` where it has none that this version knows."""
    known = [scope for name in record.scopes if (scope := scope_named(name)) is not None]
    return max(known, default=None)


def look_up(store: Store, key_id: str) -> StoredKey | None:
    """A key that holds; ``None`` where there is none with this id, or it was revoked.

    Raises
    ------
    StoreError
        If the store does not answer.
    """
    record = store.api_key(key_id)
    if record is None or record.revoked_at is not None:
        return None
    scope = scope_of(record)
    if scope is None:
        return None
    principal = Principal(key_id=record.key_id, name=record.name, scope=scope)
    return StoredKey(principal=principal, digest=record.digest)


def create_key(store: Store, *, name: str, scope: Scope) -> ApiKey:
    """Make a key and store what can check it; nobody can tell its text again.

    Raises
    ------
    OptionError
        If the name is empty, longer than 200 letters, or holds what cannot be printed.
    """
    if not (0 < len(name) <= 200 and name.isprintable()):
        raise OptionError(f"the key's name is {name[:40]!r}; expected 1 to 200 printable letters")
    key = new_key()
    store.add_key(key_id=key.key_id, name=name, scopes=(scope.label,), digest=key.digest)
    return key


def prepare_keys(store: Store, settings: Settings, *, create: bool) -> ApiKey | None:
    """Add the key of the admin key file, and see that there is a key where clients need one.

    Parameters
    ----------
    store, settings
        Of the server that is about to start.
    create
        Whether to make an admin key where there is none.

    Returns
    -------
    ApiKey | None
        The key that was made, if any.

    Raises
    ------
    OptionError
        If the file holds no key or a revoked one, or clients need keys and there is none.
    """
    if settings.admin_key_file is not None:
        _add_file_key(store, settings)
    if any(record.revoked_at is None for record in store.list_keys()):
        return None
    if create:
        return create_key(store, name=FIRST_KEY_NAME, scope=Scope.ADMIN)
    if needs_keys(settings):
        raise OptionError(
            f"clients of {settings.host} need API keys, and the store has none",
            hint="make one with `replan keys create --store ... --scope admin`, or start with --create-key",
        )
    return None


def _add_file_key(store: Store, settings: Settings) -> None:
    path = settings.admin_key_file
    assert path is not None
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the admin key file {path} cannot be read: {error}") from error
    key = read_key(text, f"the admin key file {path}")
    record = store.api_key(key.key_id)
    if record is None:
        record = store.add_key(key_id=key.key_id, name=FILE_KEY_NAME, scopes=(Scope.ADMIN.label,), digest=key.digest)
    if record.digest != key.digest:
        raise OptionError(f"the admin key file {path} holds another key than the store has under {key.key_id}")
    if record.revoked_at is not None:
        raise OptionError(
            f"the admin key file {path} holds key {key.key_id}, which was revoked",
            hint="put a new one in its place; `replan keys generate` makes it",
        )
