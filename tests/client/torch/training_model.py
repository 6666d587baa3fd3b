"""A model of staggered training: who may start, contribute and step when, and what live workers then hold.

It keeps only what the protocol's proof uses, so it allows more than real workers do: a worker contributes to its slot's sum once
all that its microbatches pass have started the iteration, and steps once all of its slot have contributed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from replan_client.operation import Worker
from replan_client.torch.agreement import Decision, Held, Member, agree


@dataclass
class Simulated:
    """One worker: iterations completed, and how far it is into the next one."""

    completed: int | None
    kept: int | None = None
    started: int = 0
    contributed: int = 0

    @property
    def versions(self) -> tuple[int, ...]:
        """Versions it holds."""
        return tuple(sorted({version for version in (self.completed, self.kept) if version is not None}))


@dataclass
class Cluster:
    """Workers of ``num_pipelines`` pipelines and ``num_slots`` slots; ``confirms`` is the rule for slots with an idle worker."""

    draw: random.Random
    num_pipelines: int
    num_slots: int
    confirms: bool = True
    workers: dict[Worker, Simulated] = field(default_factory=dict)
    routes: list[list[Worker]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for pipeline in range(self.num_pipelines):
            for slot in range(self.num_slots):
                self.workers[Worker(pipeline, slot)] = Simulated(completed=0)
        self.route()

    def slot(self, slot: int) -> list[Worker]:
        """Live workers of a slot."""
        return [worker for worker in self.workers if worker.slot == slot]

    def route(self) -> None:
        """Give each slot's share of some microbatches to workers drawn by chance; some may get none."""
        self.routes = [
            [self.draw.choice(self.slot(slot)) for slot in range(self.num_slots)]
            for _ in range(self.draw.randint(1, 2 * self.num_pipelines))
        ]

    def is_loaded(self, worker: Worker) -> bool:
        """Whether microbatches pass a worker."""
        return any(worker in route for route in self.routes)

    def may_start(self, worker: Worker) -> bool:
        """Whether it may begin the next iteration."""
        me = self.workers[worker]
        if me.completed is None or me.started != me.completed:
            return False
        peers = self.slot(worker.slot)
        waits = self.confirms and not all(map(self.is_loaded, peers))
        return not waits or all((self.workers[peer].completed or 0) >= me.completed for peer in peers)

    def may_contribute(self, worker: Worker) -> bool:
        """Whether all its microbatches can be done, so that its gradients are whole."""
        me = self.workers[worker]
        if me.contributed == me.started:
            return False
        met = [other for route in self.routes if worker in route for other in route]
        return all(self.workers[other].started >= me.started for other in met)

    def may_step(self, worker: Worker) -> bool:
        """Whether the slot's sum is there."""
        me = self.workers[worker]
        if me.completed is None or me.contributed <= me.completed:
            return False
        return all(self.workers[peer].contributed > me.completed for peer in self.slot(worker.slot))

    def advance(self, num_events: int) -> None:
        """Let events happen in an order drawn by chance."""
        for _ in range(num_events):
            possible = [
                (worker, event)
                for worker in self.workers
                for event in ("start", "contribute", "step")
                if getattr(self, f"may_{event}")(worker)
            ]
            assert possible, "nobody waits for ever"
            worker, event = self.draw.choice(possible)
            me = self.workers[worker]
            if event == "start":
                me.started += 1
            elif event == "contribute":
                me.contributed += 1
            else:
                assert me.completed is not None
                me.kept, me.completed = me.completed, me.completed + 1

    def kill(self, workers: Iterable[Worker]) -> None:
        """Let workers die."""
        for worker in workers:
            del self.workers[worker]

    def members(self) -> list[Member]:
        """What live workers publish."""
        return [
            Member(
                name=str(worker),
                incarnation=1,
                position=worker,
                stages=(worker.slot,),
                is_loaded=self.is_loaded(worker),
                held=(Held(stages=(worker.slot,), versions=me.versions),),
            )
            for worker, me in self.workers.items()
        ]

    def form(self, *, num_copies: int | None = None, adopting: Iterable[Worker] = ()) -> Decision:
        """Go on together. With ``num_copies`` the generation breaks after so many copies.

        ``adopting`` are those that had passed the barrier when it broke, which takes all copies.
        """
        decision = agree(self.members())
        is_whole = num_copies is None or num_copies >= len(decision.copies)
        for copy in decision.copies[:num_copies]:
            self.workers[copy.receiver].kept = decision.version
        for copy in decision.copies[len(decision.copies) if is_whole else num_copies :]:
            # Half written: what was there before is gone.
            self.workers[copy.receiver].kept = None
        for worker in list(self.workers) if num_copies is None else adopting if is_whole else ():
            me = self.workers[worker]
            if me.completed != decision.version:
                me.completed = me.kept = decision.version
        if num_copies is None:
            for me in self.workers.values():
                me.started = me.contributed = decision.version
        return decision
