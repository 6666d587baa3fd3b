"""Checksums that bind stored bytes to what they stand for, so that swapped rows are found as well as changed ones."""

from __future__ import annotations

import hashlib


def sha256_hex(content: bytes) -> str:
    """sha256 of bytes, 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def document_checksum(content: bytes, plan_id: str, kind: str) -> str:
    """sha256 of a plan's document and of what it stands for."""
    return hashlib.sha256(b"\0".join((plan_id.encode(), kind.encode(), content))).hexdigest()


def row_checksum(*fields: bytes | str | int | float | None) -> str:
    """sha256 of the fields of a row; each goes in with its type and length, so no two rows look alike."""
    digest = hashlib.sha256()
    for field in fields:
        content = field if isinstance(field, bytes) else str(field).encode("utf-8", "surrogatepass")
        digest.update(f"{type(field).__name__} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()
