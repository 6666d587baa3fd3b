"""What a client remembers is bounded."""

from __future__ import annotations

from replan_client.answers import Answer
from replan_client.memory import AnswerCache


def tagged(body: bytes) -> Answer:
    """An answer with a tag."""
    return Answer(200, {"etag": '"a"'}, body)


def test_answers_go_that_were_longest_not_asked_for() -> None:
    """By bytes and by number; one that is too large is not kept and takes the place of what was."""
    cache = AnswerCache(max_bytes=100)
    cache.put("a", tagged(b" " * 40))
    cache.put("b", tagged(b" " * 40))
    assert cache.get("a") is not None
    cache.put("c", tagged(b" " * 40))
    # The third made 120 bytes; "b" was not asked for, "a" was.
    assert [name for name in ("a", "b", "c") if cache.get(name)] == ["a", "c"]
    cache.put("a", tagged(b" " * 101))
    assert cache.get("a") is None
    for number in range(200):
        cache.put(str(number), tagged(b""))
    assert sum(cache.get(str(number)) is not None for number in range(200)) == 64


def test_an_answer_takes_the_place_of_its_predecessor() -> None:
    """Its bytes are counted once."""
    cache = AnswerCache(max_bytes=100)
    for size in (60, 70, 80):
        cache.put("a", tagged(b" " * size))
    cache.put("b", tagged(b" " * 20))
    assert cache.get("a") is not None
    assert cache.get("b") is not None
