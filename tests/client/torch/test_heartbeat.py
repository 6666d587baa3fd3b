"""Signs of life through real stores."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from replan_client.errors import ArgumentError  # noqa: E402
from replan_client.torch.heartbeat import Heartbeat, Observer  # noqa: E402
from replan_client.torch.limits import Limits  # noqa: E402
from torch.distributed import FileStore, HashStore, PrefixStore, Store, TCPStore  # noqa: E402

STORES: dict[str, Callable[[Path], Store]] = {
    "tcp": lambda _: TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, timeout=timedelta(seconds=20)),
    "file": lambda path: FileStore(str(path / "store"), -1),
    "hash": lambda _: HashStore(),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind."""
    return PrefixStore("job", STORES[request.param](tmp_path))


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def observe(observer: Observer, clock: Clock, seconds: float, *names: str) -> list[tuple[str, ...]]:
    """Look every half second of the test's clock."""
    found = []
    for _ in range(int(2 * seconds)):
        clock.now += 0.5
        found.append(observer.still(names))
    return found


def test_a_process_counts_until_it_is_closed(store: Store) -> None:
    """The count moves while the heartbeat is open, and not afterwards."""
    with Heartbeat(store, "0/1", interval_s=0.01):
        first = store.add("heartbeat/0/1", 0)
        while store.add("heartbeat/0/1", 0) < first + 3:
            time.sleep(0.01)
    last = store.add("heartbeat/0/1", 0)
    time.sleep(0.1)
    assert store.add("heartbeat/0/1", 0) == last


def test_who_does_not_count_stands_still_after_the_time_out(store: Store) -> None:
    """A count is watched for a whole time-out of the observer's own clock; one that moves starts anew."""
    clock = Clock()
    observer = Observer(store, timeout_s=4, start_timeout_s=8, clock=clock)
    store.add("heartbeat/0/0", 1)
    store.add("heartbeat/0/1", 1)
    assert observe(observer, clock, 4, "0/0", "0/1") == [()] * 8
    store.add("heartbeat/0/1", 1)
    # First seen at 0.5 s: beyond 4 s from then on.
    assert observe(observer, clock, 1, "0/0", "0/1") == [(), ("0/0",)]
    assert observe(observer, clock, 4, "0/0", "0/1")[-1] == ("0/0", "0/1")


def test_who_never_counted_may_be_starting(store: Store) -> None:
    """A process that gave no sign yet has the longer time."""
    clock = Clock()
    observer = Observer(store, timeout_s=4, start_timeout_s=8, clock=clock)
    assert observe(observer, clock, 8.5, "1/0") == [()] * 17
    assert observe(observer, clock, 0.5, "1/0") == [("1/0",)]


def test_a_look_that_comes_late_starts_anew(store: Store) -> None:
    """An observer that slept itself does not take the others for dead."""
    clock = Clock()
    observer = Observer(store, timeout_s=4, start_timeout_s=8, clock=clock)
    store.add("heartbeat/0/0", 1)
    observe(observer, clock, 3, "0/0")
    clock.now += 60
    assert observe(observer, clock, 4, "0/0") == [()] * 8
    assert observe(observer, clock, 1, "0/0")[-1] == ("0/0",)


def test_many_look_less_often_each() -> None:
    """The store has as much to answer for 2,048 workers as for 64: one in 32 times as long."""
    limits = Limits(poll_s=0.02, heartbeat_timeout_s=15)
    assert [limits.pause_s(count) for count in (1, 64, 128, 2048)] == [0.02, 0.02, 0.04, 0.64]
    assert 2 * limits.look_s < limits.heartbeat_timeout_s / 2, (
        "a heartbeat looked at as rarely would count as not watched"
    )


@pytest.mark.parametrize(
    "values",
    [{"poll_s": 0}, {"join_timeout_s": -1}, {"link_timeout_s": float("inf")}, {"heartbeat_timeout_s": 1.5}],
)
def test_times_that_cannot_be_are_refused(values: dict[str, float]) -> None:
    """Times are above 0, and silence lasts longer than a heartbeat."""
    with pytest.raises(ArgumentError, match=next(iter(values))):
        Limits(**values)
