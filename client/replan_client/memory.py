"""What a client remembers: answers by their tags, and the epochs and plans that it was given."""

from __future__ import annotations

import threading
from collections import OrderedDict

from replan_client.answers import Answer
from replan_client.epochs import Epoch

_MAX_ANSWERS = 64
_MAX_ANSWER_BYTES = 16 * 2**20
_MAX_EPOCHS = 64


class AnswerCache:
    """Answers by path, each with its tag, for ``If-None-Match``; may be used from several threads.

    Parameters
    ----------
    max_bytes
        Most bytes of bodies together; one that is larger is not kept.
    """

    def __init__(self, *, max_bytes: int = _MAX_ANSWER_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Answer] = OrderedDict()
        self._num_bytes = 0

    def get(self, target: str) -> Answer | None:
        """What is kept of a path."""
        with self._lock:
            found = self._kept.get(target)
            if found is not None:
                self._kept.move_to_end(target)
            return found

    def put(self, target: str, answer: Answer) -> None:
        """Keep an answer in place of an earlier one; one without a tag is of no use and not kept."""
        with self._lock:
            earlier = self._kept.pop(target, None)
            self._num_bytes -= 0 if earlier is None else len(earlier.body)
            if "etag" not in answer.headers or len(answer.body) > self._max_bytes:
                return
            self._kept[target] = answer
            self._num_bytes += len(answer.body)
            while len(self._kept) > _MAX_ANSWERS or self._num_bytes > self._max_bytes:
                self._num_bytes -= len(self._kept.popitem(last=False)[1].body)


class KnownEpochs:
    """Epochs that a client was given, the newest few of them, and the plans that their programs named.

    May be used from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, int] = {}
        self._epochs: OrderedDict[tuple[str, int], Epoch] = OrderedDict()
        self._plan_ids: OrderedDict[tuple[str, int], str] = OrderedDict()

    def newest(self, job_id: str) -> int:
        """Highest number seen of a job; 0 for none."""
        with self._lock:
            return self._newest.get(job_id, 0)

    def add(self, epoch: Epoch) -> None:
        """Remember an epoch."""
        with self._lock:
            self._newest[epoch.job] = max(epoch.epoch, self._newest.get(epoch.job, 0))
            self._epochs[epoch.job, epoch.epoch] = epoch
            while len(self._epochs) > _MAX_EPOCHS:
                self._epochs.popitem(last=False)

    def get(self, job_id: str, number: int) -> Epoch | None:
        """An epoch, if it is remembered."""
        with self._lock:
            return self._epochs.get((job_id, number))

    def add_plan(self, epoch: Epoch, plan_id: str) -> None:
        """Remember which plan the programs of an epoch carry out."""
        with self._lock:
            self._plan_ids[epoch.job, epoch.epoch] = plan_id
            while len(self._plan_ids) > _MAX_EPOCHS:
                self._plan_ids.popitem(last=False)

    def plan_id(self, epoch: Epoch) -> str | None:
        """Plan that other programs of an epoch named; ``None`` where none is known."""
        with self._lock:
            return self._plan_ids.get((epoch.job, epoch.epoch))

    def epoch_of_plan(self, plan_id: str) -> Epoch | None:
        """Newest remembered epoch whose programs named a plan."""
        with self._lock:
            keys = [key for key, known in self._plan_ids.items() if known == plan_id and key in self._epochs]
            return self._epochs[keys[-1]] if keys else None
