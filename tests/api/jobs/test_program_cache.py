"""Which programs stay in memory."""

from __future__ import annotations

from api.jobs.materialise import Materialised
from api.jobs.program_cache import ProgramCache


def programs(num_bytes: int) -> Materialised:
    """Programs that count as so many bytes: all of them the plan's."""
    return Materialised(plan_id="p", plan=b"x" * num_bytes, workers_of_ranks={}, programs={})


def kept(cache: ProgramCache, job_id: str, last: int) -> list[int]:
    """Epochs of a job that are kept, of 1 to ``last``."""
    return [epoch for epoch in range(1, last + 1) if cache.get(job_id, epoch) is not None]


def test_old_epochs_of_one_job_do_not_drive_out_the_newest_of_another() -> None:
    """Of 100 bytes a quiet job's 40 stay while another makes fifty epochs of 20, of which the last three fit."""
    cache = ProgramCache(max_bytes=100)
    cache.put("quiet", 7, programs(40))
    for epoch in range(1, 51):
        cache.put("busy", epoch, programs(20))
    assert kept(cache, "quiet", 10) == [7]
    assert kept(cache, "busy", 50) == [48, 49, 50]


def test_the_newest_that_were_longest_not_asked_for_go_where_no_old_ones_are_left() -> None:
    """Three jobs of 40 bytes do not fit into 100: the one that was not asked for goes."""
    cache = ProgramCache(max_bytes=100)
    cache.put("a", 1, programs(40))
    cache.put("b", 1, programs(40))
    assert cache.get("a", 1) is not None
    cache.put("c", 1, programs(40))
    assert [kept(cache, job_id, 1) for job_id in "abc"] == [[1], [], [1]]


def test_what_came_last_stays_whatever_it_takes() -> None:
    """Programs beyond the bound are kept alone, since somebody waits for them."""
    cache = ProgramCache(max_bytes=100)
    cache.put("a", 1, programs(40))
    cache.put("b", 1, programs(1000))
    assert [kept(cache, job_id, 1) for job_id in "ab"] == [[], [1]]
    cache.put("b", 1, programs(10))
    cache.put("a", 1, programs(90))
    assert [kept(cache, job_id, 1) for job_id in "ab"] == [[1], [1]]


def test_an_older_epoch_asked_for_later_is_no_newest() -> None:
    """The newest epoch stays also where an older one was made after it."""
    cache = ProgramCache(max_bytes=100)
    cache.put("a", 5, programs(40))
    cache.put("a", 2, programs(40))
    cache.put("b", 1, programs(40))
    assert kept(cache, "a", 5) == [5]


def test_forgetting_leaves_what_came_after() -> None:
    """A job registered anew keeps its epochs, and a deleted one none; what they took is free again."""
    cache = ProgramCache(max_bytes=100)
    for epoch in (1, 2, 3):
        cache.put("a", epoch, programs(30))
    cache.forget(lambda job_id, epoch: job_id == "a" and epoch < 3)
    assert kept(cache, "a", 3) == [3]
    cache.forget(lambda job_id, _epoch: job_id == "a")
    cache.put("b", 1, programs(50))
    cache.put("c", 1, programs(50))
    assert kept(cache, "b", 1) == [1]
