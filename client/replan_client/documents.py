"""JSON answers, read field by field: each fault is named with its place, what was found and what was expected."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from replan_client.errors import AnswerError

_MOST_SHOWN = 60


def parse_object(content: bytes, what: str) -> dict[str, Any]:
    """The JSON object that bytes hold.

    Parameters
    ----------
    content
        The bytes.
    what
        What they are, for the message.

    Raises
    ------
    AnswerError
        If they hold anything else.
    """
    try:
        document = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise AnswerError(
            f"{what} is no JSON: {printable(content[:_MOST_SHOWN].decode('utf-8', 'replace'))!r}",
            hint="see that the URL names RePlan's service and not something before it",
        ) from error
    if not isinstance(document, dict):
        raise AnswerError(f"{what} is {_shown(document)}; expected a JSON object")
    return document


def printable(text: str) -> str:
    """Text of a service without what would steer a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)


class Fields:
    """Typed access to the fields of a JSON object.

    Parameters
    ----------
    document
        The object.
    what
        What it is, for messages.
    """

    def __init__(self, document: Mapping[str, Any], what: str) -> None:
        self.document = document
        self._what = what

    def text(self, name: str) -> str:
        """A string; each method raises :class:`AnswerError` where the field is missing or anything else."""
        value = self._value(name)
        return value if isinstance(value, str) else self._refuse(name, "a string")

    def text_or_none(self, name: str) -> str | None:
        """A string or null."""
        return None if self._value(name) is None else self.text(name)

    def number(self, name: str, *, least: int = 0) -> int:
        """An integer, at least ``least``."""
        value = self._value(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            self._refuse(name, f"an integer from {least} on")
        return value

    def number_or_none(self, name: str, *, least: int = 0) -> int | None:
        """An integer or null."""
        return None if self._value(name) is None else self.number(name, least=least)

    def real(self, name: str) -> float:
        """A finite number."""
        value = self._value(name)
        try:
            number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        except OverflowError:
            number = math.nan
        return number if math.isfinite(number) else self._refuse(name, "a finite number")

    def real_or_none(self, name: str) -> float | None:
        """A finite number or null."""
        return None if self._value(name) is None else self.real(name)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._value(name)
        return value if isinstance(value, bool) else self._refuse(name, "true or false")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        values = self._list(name)
        return tuple(v if isinstance(v, str) else self._refuse(name, "a list of strings") for v in values)

    def object_or_none(self, name: str) -> Fields | None:
        """An object or null."""
        value = self._value(name)
        if value is None:
            return None
        return Fields(value, f"{self._what}'s {name}") if isinstance(value, dict) else self._refuse(name, "an object")

    def objects(self, name: str) -> tuple[Fields, ...]:
        """A list of objects."""
        where = f"{self._what}'s {name}"
        return tuple(
            Fields(value, f"{where}[{i}]") if isinstance(value, dict) else self._refuse(name, "a list of objects")
            for i, value in enumerate(self._list(name))
        )

    def _list(self, name: str) -> list[Any]:
        value = self._value(name)
        return value if isinstance(value, list) else self._refuse(name, "a list")

    def _value(self, name: str) -> Any:
        if name not in self.document:
            raise AnswerError(
                f"{self._what} has no {name!r}; expected one",
                hint="service and client may be of versions that do not go together",
            )
        return self.document[name]

    def _refuse(self, name: str, expected: str) -> NoReturn:
        raise AnswerError(f"{self._what}'s {name!r} is {_shown(self.document[name])}; expected {expected}")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _shown(value: object) -> str:
    text = printable(repr(value))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
