"""The page's files, read and compressed once."""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

INDEX = "index.html"
_LEVEL = 9
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

SECURITY_HEADERS = {
    # Nothing but this server's own files, no inline code, and no text that becomes markup.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file of the page.

    Parameters
    ----------
    media_type
        Its Content-Type.
    etag
        Tag of its bytes, quoted.
    content
        The file in gzip.
    """

    media_type: str
    etag: str
    content: bytes


@cache
def assets() -> dict[str, Asset]:
    """Every file of the page by its name."""
    found = {}
    for path in files("api.page").joinpath("static").iterdir():
        suffix = path.name.rpartition(".")[2]
        if suffix in _TYPES:
            content = path.read_bytes()
            if path.name == INDEX:
                content = content.replace(b"@VERSION@", importlib.metadata.version("replan").encode("ascii"))
            found[path.name] = Asset(
                media_type=_TYPES[suffix],
                etag=f'"{hashlib.sha256(content).hexdigest()[:32]}"',
                content=gzip.compress(content, _LEVEL, mtime=0),
            )
    return found
