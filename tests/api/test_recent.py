"""Bounded caches: which values go, and when."""

from __future__ import annotations

import random
import threading

from api.recent import Recent


def kept(cache: Recent[str, int], keys: str) -> str:
    """Those of some keys that are kept; asking is no use."""
    return "".join(key for key in keys if key in cache)


def test_what_was_longest_not_used_goes_first() -> None:
    """Of three places one is used again before a fourth value comes; putting a value again is a use too."""
    cache: Recent[str, int] = Recent(3)
    for number, key in enumerate("abc"):
        cache.put(key, number)
    assert cache.get("a") == 0
    cache.put("d", 3)
    assert kept(cache, "abcd") == "acd"
    cache.put("c", 7)
    cache.put("e", 4)
    cache.put("f", 5)
    assert kept(cache, "acdef") == "cef"
    assert (cache.get("c"), cache.get("a"), len(cache)) == (7, None, 3)


def test_bytes_are_bounded_but_for_the_newest() -> None:
    """Of 100 bytes three of 40 do not fit; one of 1000 stays alone; what is dropped or replaced takes no room."""
    cache: Recent[str, int] = Recent(10, most_bytes=100, size_of=lambda _key, value: value)
    for key in "abc":
        cache.put(key, 40)
    assert kept(cache, "abc") == "bc"
    cache.put("d", 1000)
    assert kept(cache, "abcd") == "d"
    cache.put("d", 10)
    cache.put("e", 90)
    assert kept(cache, "de") == "de"
    cache.drop("e")
    cache.drop("e")
    cache.put("f", 90)
    assert kept(cache, "def") == "df"


def test_many_threads_keep_the_bounds() -> None:
    """Whatever they put, get and drop at once, sizes add up at the end."""
    cache: Recent[int, int] = Recent(5, most_bytes=60, size_of=lambda _key, value: value)

    def work(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(2000):
            key = draw.randrange(20)
            draw.choice((cache.get, cache.drop, lambda key: cache.put(key, draw.randrange(1, 20))))(key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = [value for key in range(20) if (value := cache.get(key)) is not None]
    assert len(left) == len(cache) <= 5
    assert sum(left) <= 60
    cache.put(99, 60)
    assert len(cache) == 1, "sixty bytes are all that there is room for"
