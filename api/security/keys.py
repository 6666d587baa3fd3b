"""API keys: ``rpk_<id>_<secret>``. The id finds the key in the store, the secret is 256 random bits and is kept only as a hash.

A fast hash is enough: nobody guesses 256 bits, so there is nothing that a slow one would make harder.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

from planner.errors import OptionError

PREFIX = "rpk"
_KEY = re.compile(rf"{PREFIX}_([a-z0-9]{{12}})_([0-9a-f]{{64}})", re.ASCII)
_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key in clear: shown once to who made it, and sent with each request.

    Parameters
    ----------
    key_id
        12 letters and digits; no secret, so it may stand in logs.
    text
        The whole key.
    """

    key_id: str
    text: str

    def __repr__(self) -> str:
        return f"ApiKey({self.key_id})"

    @property
    def digest(self) -> str:
        """What the store keeps: sha256 of the whole text, 64 hexadecimal digits; it covers the id, so rows cannot be swapped."""
        return hashlib.sha256(self.text.encode("ascii")).hexdigest()


def new_key() -> ApiKey:
    """Make a key from the operating system's random source."""
    key_id = "".join(secrets.choice(_ID_LETTERS) for _ in range(12))
    return ApiKey(key_id=key_id, text=f"{PREFIX}_{key_id}_{secrets.token_hex(32)}")


def parse_key(text: str) -> ApiKey | None:
    """Key of a text; ``None`` where it does not have a key's form."""
    match = _KEY.fullmatch(text)
    return None if match is None else ApiKey(key_id=match[1], text=text)


def read_key(text: str, where: str) -> ApiKey:
    """Key of a text that has to be one, such as a file's.

    Raises
    ------
    OptionError
        If it is none; the message does not repeat it.
    """
    key = parse_key(text.strip())
    if key is None:
        raise OptionError(f"{where} holds no API key; expected {PREFIX}_<12 letters or digits>_<64 hexadecimal digits>")
    return key
