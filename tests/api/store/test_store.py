"""The store as a whole: many tables' methods in one namespace."""

from __future__ import annotations

from collections import Counter

from api.store import Store


def test_no_table_takes_the_name_of_another_ones_method() -> None:
    """Methods of one part would silently take the place of another's, private ones too."""
    names = Counter(
        name
        for part in Store.__mro__[:-1]
        for name in vars(part)
        if not (name.startswith("__") and name.endswith("__"))
    )
    assert [name for name, count in names.items() if count > 1] == []
