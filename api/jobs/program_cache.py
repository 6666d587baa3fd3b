"""Programs of epochs in memory, bounded by what they take."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from api.jobs.materialise import Materialised

MAX_BYTES = 256 * 2**20
_BYTES_A_NAME = 200
"""What a worker or rank takes beside its program: two texts and a place in a table."""


class ProgramCache:
    """Programs of epochs. Where they become too many, old epochs of any job go before the newest one of another.

    Among both, those that were longest not asked for go first. All methods belong to the event loop's thread.

    Parameters
    ----------
    max_bytes
        Most bytes that are kept, but for the programs that came last, which always are.
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._kept: OrderedDict[tuple[str, int], tuple[Materialised, int]] = OrderedDict()
        self._newest: dict[str, int] = {}

    def get(self, job_id: str, epoch: int) -> Materialised | None:
        """Programs of an epoch where they are kept."""
        found = self._kept.get((job_id, epoch))
        if found is None:
            return None
        self._kept.move_to_end((job_id, epoch))
        return found[0]

    def put(self, job_id: str, epoch: int, made: Materialised) -> None:
        """Keep the programs of an epoch."""
        key = (job_id, epoch)
        self._drop(key)
        size = _size(made)
        self._kept[key] = (made, size)
        self._num_bytes += size
        self._newest[job_id] = max(epoch, self._newest.get(job_id, 0))
        old = [other for other in self._kept if other != key and self._newest[other[0]] != other[1]]
        newest = [other for other in self._kept if other != key and self._newest[other[0]] == other[1]]
        for other in (*old, *newest):
            if self._num_bytes <= self._max_bytes:
                return
            self._drop(other)

    def forget(self, is_gone: Callable[[str, int], bool]) -> None:
        """Forget the epochs of which this is so."""
        for key in [key for key in self._kept if is_gone(*key)]:
            self._drop(key)

    def _drop(self, key: tuple[str, int]) -> None:
        found = self._kept.pop(key, None)
        if found is None:
            return
        self._num_bytes -= found[1]
        left = [epoch for job_id, epoch in self._kept if job_id == key[0]]
        if left:
            self._newest[key[0]] = max(left)
        else:
            self._newest.pop(key[0], None)


def _size(made: Materialised) -> int:
    """Bytes that the programs of an epoch take, about."""
    contents = len(made.plan) + sum(map(len, made.programs.values()))
    return contents + _BYTES_A_NAME * (len(made.programs) + len(made.workers_of_ranks))
