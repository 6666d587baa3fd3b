"""What the processes of a job tell each other through a store, and where it stands there.

A *generation* is one attempt to run one epoch: the workers that are live in the epoch come together in it, train in it, and leave
it together. All keys are written once, but for counters and the number of the present attempt, which only grow. So whoever comes
late, or was stopped for an hour, reads what the others read.

=====================================  ================================================================================
key                                    meaning
=====================================  ================================================================================
``heartbeat/<name>``                   count of a living process (:mod:`replan_client.torch.heartbeat`)
``incarnation/<name>``                 how many processes have run under this name
``attempt/<epoch>``                    the present attempt at this epoch; a higher one says that the ones before are over
``<epoch>.<attempt>/member/<name>``    record of a worker that is ready to form this generation
``<epoch>.<attempt>/ready/<name>``     a worker that has read all records
``<epoch>.<attempt>/turn<n>/<name>``   the donor of copy ``n``: it is about to send
``<epoch>.<attempt>/copied/<name>``    a worker that has given and taken all it had to
``<epoch>.<attempt>/switch``           iteration before which all leave this generation, and the epoch that they go to
``<epoch>.<attempt>/left/<name>``      a worker that left it there
``<epoch>.<attempt>/end/<name>``       a worker that has completed the last iteration
``<epoch>.<attempt>/links/...``        what its connections are made with
``shapes/<revision>/...``              what stages take and give (:mod:`replan_client.torch.shapes`)
``begun``                              some generation was formed: whoever comes now has no state
``finished``                           training is over: the number of iterations, completed by all of some generation, or what
                                       the trained code raised in a worker
=====================================  ================================================================================

A ``name`` is a worker's home, ``pipeline/slot``, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch.distributed import PrefixStore, Store

from replan_client.torch.failure import WorkerFailure
from replan_client.torch.training_errors import MemberRecordError


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Generation:
    """One attempt to run one epoch. Text form ``<epoch>.<attempt>``."""

    epoch: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """The iteration before which all leave a generation, and the epoch that they go to, or a newer one."""

    iteration: int
    epoch: int


class Rendezvous:
    """One process's view of the store. For one thread.

    Parameters
    ----------
    store
        A store that outlives the workers, and starts empty when the job starts.
    name
        The worker by its home.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self.incarnation = int(store.add(f"incarnation/{name}", 1))

    def newest_incarnation(self) -> int:
        """Number of the youngest process under this name."""
        return int(self._store.add(f"incarnation/{self._name}", 0))

    def present(self, epoch: int) -> Generation:
        """The generation to form for an epoch."""
        attempt = self._store.compare_set(f"attempt/{epoch}", "", "0")
        return Generation(epoch=epoch, attempt=_number(attempt, "attempt"))

    def is_over(self, generation: Generation) -> bool:
        """Whether somebody has broken a generation."""
        return self.present(generation.epoch).attempt > generation.attempt

    def break_up(self, generation: Generation) -> None:
        """Tell all that a generation is over, in case nobody has yet: those who still train epoch form its next one."""
        key = f"attempt/{generation.epoch}"
        self._store.compare_set(key, str(generation.attempt), str(generation.attempt + 1))

    def publish(self, generation: Generation, phase: str, content: bytes = b"1") -> bytes:
        """Write this worker's key of a phase, unless it stands there; what stands there then."""
        return bytes(self._store.compare_set(f"{generation}/{phase}/{self._name}", "", content.decode()))

    def has_all(self, generation: Generation, phase: str, names: Sequence[str]) -> bool:
        """Whether all of these workers have written their keys of a phase: one question to the store, however many they are."""
        return not names or bool(self._store.check([f"{generation}/{phase}/{name}" for name in names]))

    def missing(self, generation: Generation, phase: str, names: Sequence[str]) -> tuple[str, ...]:
        """Which of these workers have not written their keys of a phase: one question for each, unless all have."""
        if self.has_all(generation, phase, names):
            return ()
        return tuple(name for name in names if not self.has_all(generation, phase, (name,)))

    def read(self, generation: Generation, phase: str, names: Iterable[str]) -> list[bytes]:
        """What these workers wrote in a phase; all have."""
        return list(map(bytes, self._store.multi_get([f"{generation}/{phase}/{name}" for name in names])))

    def propose(self, generation: Generation, switch: Switch) -> None:
        """Have all leave a generation at a boundary, unless another one stands there already."""
        self._store.compare_set(f"{generation}/switch", "", f"{switch.iteration} {switch.epoch}")

    def switch(self, generation: Generation) -> Switch | None:
        """Where all leave a generation; ``None`` where nobody has said so yet."""
        key = f"{generation}/switch"
        if not self._store.check([key]):
            return None
        iteration, _, epoch = bytes(self._store.get(key)).partition(b" ")
        return Switch(iteration=_number(iteration, "switch"), epoch=_number(epoch, "switch"))

    def mark_begun(self) -> None:
        """From now on whoever starts has no state."""
        self._store.set("begun", "1")

    def has_begun(self) -> bool:
        """Whether a generation was ever formed."""
        return bool(self._store.check(["begun"]))

    def mark_finished(self, ending: int | WorkerFailure) -> None:
        """Training is over, unless it was before: so many iterations were completed, or a worker's code raised."""
        content = ending.to_bytes() if isinstance(ending, WorkerFailure) else b"%d" % ending
        self._store.compare_set("finished", "", content.decode())

    def ending(self) -> int | WorkerFailure:
        """How training ended that is finished: iterations completed, or what ended it before that.

        Raises
        ------
        MemberRecordError
            If the store holds something else.
        """
        content = bytes(self._store.get("finished"))
        return int(content) if content.isdigit() else WorkerFailure.from_bytes(content)

    def is_finished(self) -> bool:
        """Whether training is over."""
        return bool(self._store.check(["finished"]))

    def links_store(self, generation: Generation) -> Store:
        """Where a generation's connections are made with; a connection of its own, so for another thread."""
        return PrefixStore(f"{generation}/links", self._store.clone())

    def shapes_store(self, revision: int) -> Store:
        """Where stages say what they take and give, which is the same in all epochs of a job's revision."""
        return PrefixStore(f"shapes/{revision}", self._store)


def _number(content: bytes, what: str) -> int:
    text = bytes(content)
    if not text.isdigit():
        raise MemberRecordError(f"the store's key {what} holds {text[:40]!r}; expected a number")
    return int(text)
