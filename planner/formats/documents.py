"""YAML and JSON documents, read with limits before anything is built from them.

A document is data from outside: its size is checked before it is read, its depth before it is built, and what has no plain
meaning is refused: duplicate keys, NaN and infinities, YAML anchors, aliases, tags and several documents in one file.

Plain YAML scalars follow the core schema of YAML 1.2, so that ``no`` and ``0007`` stay text; digits may be grouped as in
``80_000_000``.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml

from planner.errors import DocumentLimitError, InputError, JobFileError

Format: TypeAlias = Literal["yaml", "json"]

MAX_DOCUMENT_BYTES = 4 * 2**20
"""Largest document read unless the caller says otherwise, 4 MiB: a table of 131,072 GPUs takes 1."""

MAX_DEPTH = 32
"""Deepest nesting of lists and mappings; a job file needs 4."""

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:_[0-9]{3})+)")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_MAX_DIGITS = 18
# Possessive, so that a long text is neither remembered letter by letter nor read twice.
_JSON_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def read_text(
    path: str | os.PathLike[str], *, max_bytes: int = MAX_DOCUMENT_BYTES, error: type[InputError] = JobFileError
) -> str:
    """Text of a file no larger than ``max_bytes``.

    Raises
    ------
    DocumentLimitError
        If the file is larger; it is then not read.
    InputError
        Of type ``error``, if the file cannot be read, is no regular file, or is not UTF-8.
    """
    name = Path(path).name
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > max_bytes:
                raise DocumentLimitError(f"{name} has {size} bytes; expected at most {max_bytes}")
            # A pipe has no size, so no more than one byte past the limit is ever taken.
            data = file.read(max_bytes + 1)
    except OSError as failure:
        raise error(f"{path} cannot be read: {failure.strerror or type(failure).__name__}") from failure
    except ValueError as failure:  # a NUL in the path
        raise error(f"{_short(str(path))} cannot be read: {failure}") from failure
    if len(data) > max_bytes:
        raise DocumentLimitError(f"{name} has more than {max_bytes} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise error(f"{name} is not UTF-8: byte {failure.start} is {data[failure.start]:#04x}") from failure


def parse_document(
    text: str,
    *,
    format: Format,  # noqa: A002 - the word callers know
    max_bytes: int = MAX_DOCUMENT_BYTES,
    error: type[InputError] = JobFileError,
) -> Any:
    """Plain data (dicts, lists, strings, numbers, booleans, ``None``) of a YAML or JSON text.

    Raises
    ------
    DocumentLimitError
        If the text is longer than ``max_bytes`` or nested deeper than :data:`MAX_DEPTH`.
    InputError
        Of type ``error``, if the text is malformed or holds what a document may not.
    """
    if len(text) > max_bytes:
        raise DocumentLimitError(f"a document has {len(text)} characters; expected at most {max_bytes}")
    return _parse_json(text, error) if format == "json" else _parse_yaml(text, error)


def format_of(path: str | os.PathLike[str], text: str) -> Format:
    """Format by the file's ending, or by its first character where the ending says nothing."""
    ending = Path(path).suffix.lower()
    if ending == ".json":
        return "json"
    if ending in (".yaml", ".yml"):
        return "yaml"
    return "json" if text.lstrip()[:1] in ("{", "[") else "yaml"


def _parse_json(text: str, error: type[InputError]) -> Any:
    depth = 0
    for token in _JSON_TOKEN.finditer(text):
        if token[0] in ("[", "{"):
            depth += 1
            if depth > MAX_DEPTH:
                raise DocumentLimitError(
                    f"a document is nested deeper than {MAX_DEPTH} at character {token.start() + 1}"
                )
        elif token[0] in ("]", "}"):
            depth -= 1

    def pairs(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(items)
        if len(built) != len(items):
            twice = Counter(key for key, _ in items).most_common(1)[0][0]
            raise error(f"key {_short(twice)} stands twice in one object; expected each key once")
        return built

    try:
        return json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=lambda word: _integer(word, "", error),
            parse_float=lambda word: _finite(word, "", error),
            parse_constant=lambda word: _finite(word, "", error),
        )
    except json.JSONDecodeError as failure:
        raise error(f"line {failure.lineno}, column {failure.colno}: malformed JSON: {failure.msg}") from failure


@dataclass(slots=True)
class _Frame:
    """A list or mapping being built; a mapping alternates between expecting a key and its value."""

    value: list[Any] | dict[str, Any]
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    """Builds plain data from YAML events without recursion."""

    error: type[InputError]
    frames: list[_Frame] = field(default_factory=list)
    root: Any = None
    documents: int = 0

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._refuse_extras(event)
            self._scalar(event)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._refuse_extras(event)
            value: list[Any] | dict[str, Any] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
            self._put(value, event)
            self.frames.append(_Frame(value))
            if len(self.frames) > MAX_DEPTH:
                raise DocumentLimitError(f"{_at(event)}a document is nested deeper than {MAX_DEPTH}")
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            self.frames.pop()
        elif isinstance(event, yaml.AliasEvent):
            raise self.error(f"{_at(event)}alias *{event.anchor} is not taken; write the value out")
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise self.error(f"{_at(event)}a second document begins; expected one a file")

    def _scalar(self, event: Any) -> None:
        frame = self.frames[-1] if self.frames else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            # Keys are text as written, so that `1/2:` and `3:` name workers and stages alike.
            if event.value in frame.value:
                raise self.error(f"{_at(event)}key {_short(event.value)} stands twice; expected each key once")
            frame.key = event.value
            return
        self._put(_plain(event.value, _at(event), self.error) if event.implicit[0] else event.value, event)

    def _put(self, value: Any, event: Any) -> None:
        if not self.frames:
            self.root = value
            return
        frame = self.frames[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is None:
            raise self.error(f"{_at(event)}a key is a list or mapping; expected text")
        else:
            frame.value[frame.key] = value
            frame.key = None

    def _refuse_extras(self, event: Any) -> None:
        if event.anchor is not None:
            raise self.error(f"{_at(event)}anchor &{event.anchor} is not taken; write the value out where it is needed")
        if event.tag is not None:
            raise self.error(f"{_at(event)}tag {event.tag} is not taken; expected plain values")


def _parse_yaml(text: str, error: type[InputError]) -> Any:
    builder = _Builder(error)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as failure:
        # libyaml has a limit of its own, which its look-ahead may reach before we have counted.
        if failure.problem and "nesting depth" in failure.problem:
            raise DocumentLimitError(f"a document is nested deeper than {MAX_DEPTH}") from failure
        where = (
            f"line {failure.problem_mark.line + 1}, column {failure.problem_mark.column + 1}: "
            if failure.problem_mark
            else ""
        )
        raise error(f"{where}malformed YAML: {failure.problem or failure.context}") from failure
    except UnicodeEncodeError as failure:
        raise error(f"character {failure.start + 1} is half a surrogate pair, which UTF-8 cannot hold") from failure
    except yaml.YAMLError as failure:
        raise error(f"malformed YAML: {str(failure).splitlines()[0]}") from failure
    return builder.root


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it: ten times as fast."""


def _plain(word: str, where: str, error: type[InputError]) -> Any:
    """Value of a plain scalar by YAML 1.2's core schema."""
    if word in _NULLS:
        return None
    if word in _BOOLEANS:
        return _BOOLEANS[word]
    if _INTEGER.fullmatch(word):
        return _integer(word, where, error)
    if _FLOAT.fullmatch(word) or _NOT_FINITE.fullmatch(word):
        return _finite(word, where, error)
    return word


def _integer(word: str, where: str, error: type[InputError]) -> int:
    if len(word) > _MAX_DIGITS + word.count("_") + word.count("-") + word.count("+"):
        raise error(f"{where}number {_short(word)} has more than {_MAX_DIGITS} digits")
    return int(word)


def _finite(word: str, where: str, error: type[InputError]) -> float:
    value = float(word.replace(".inf", "inf").replace(".nan", "nan")) if _FLOAT.fullmatch(word) else math.nan
    if not math.isfinite(value):
        raise error(f"{where}{_short(word)} is not a finite number; leave the field out or write null for no value")
    return value


def _at(event: Any) -> str:
    return f"line {event.start_mark.line + 1}, column {event.start_mark.column + 1}: "


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}..."
