"""How live workers come together for an epoch: they publish what they hold, agree, connect, copy, and go on from one version.

``docs/decisions/training-through-failures.md`` tells the protocol and why it is right.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from replan_client.operation import parse_worker
from replan_client.torch.agreement import Decision, Member, agree
from replan_client.torch.assignments import Assignment, AssignmentFeed
from replan_client.torch.errors import LinkBrokenError
from replan_client.torch.heartbeat import Observer
from replan_client.torch.limits import Limits
from replan_client.torch.linking import Linking
from replan_client.torch.links import Links
from replan_client.torch.rendezvous import Generation, Rendezvous
from replan_client.torch.reporting import Reporter
from replan_client.torch.state import TrainingState
from replan_client.torch.training_errors import ExcludedError, RendezvousError
from replan_client.torch.transfer import give_state, take_state

_LOG = logging.getLogger("replan_client")


@dataclass(frozen=True, slots=True, kw_only=True)
class Formed:
    """A generation that this worker is part of.

    Parameters
    ----------
    generation
        Which one.
    assignment
        The epoch that it runs.
    members
        All its workers.
    decision
        What they agreed on.
    links
        Connections among them.
    received_bytes
        State copied from a peer; 0 for none.
    """

    generation: Generation
    assignment: Assignment
    members: tuple[Member, ...]
    decision: Decision
    links: Links
    received_bytes: int

    @property
    def has_idle_peer(self) -> bool:
        """Whether a worker of this slot computes nothing: it could fall behind without anybody waiting for it."""
        return any(not m.is_loaded for m in self.members if m.position.slot == self.links.me.slot)


class Formation:
    """Forms generations for one worker.

    Parameters
    ----------
    name
        The worker by its home.
    rendezvous, observer
        The store; for the calling thread.
    feed, reporter
        The service.
    limits
        How long to wait.
    backend, device
        For the links.
    """

    def __init__(
        self,
        *,
        name: str,
        rendezvous: Rendezvous,
        observer: Observer,
        feed: AssignmentFeed,
        reporter: Reporter,
        limits: Limits,
        backend: str,
        device: torch.device,
    ) -> None:
        self._name = name
        self._rendezvous = rendezvous
        self._observer = observer
        self._feed = feed
        self._reporter = reporter
        self._limits = limits
        self._backend = backend
        self._device = device

    def form(
        self, assignment: Assignment, states: Mapping[tuple[int, ...], TrainingState], version: int | None
    ) -> Formed | None:
        """Come together for an epoch.

        Parameters
        ----------
        assignment
            The epoch.
        states
            States by stages: that of the stages which this worker runs in it, and those it ran before.
        version
            As for :meth:`gather`.

        Returns
        -------
        Formed | None
            ``None`` where it is over before it begins: look again which epoch it is.

        Raises
        ------
        ExcludedError
            If a younger process has this worker's name.
        StateLostError
            If the live workers hold no state to go on from.
        RendezvousError
            If live workers do not come, and this one has no state and so no say about them.
        """
        generation = self._rendezvous.present(assignment.number)
        member = self._member(assignment, states)
        standing = Member.from_bytes(self._rendezvous.publish(generation, "member", member.to_bytes()))
        if max(standing.incarnation, self._rendezvous.newest_incarnation()) > member.incarnation:
            raise ExcludedError(
                f"another process runs as worker {self._name} of the job", hint="start one process a worker"
            )
        if standing.incarnation < member.incarnation:
            # Formed, or tried to, by a process that ended unnoticed: whoever is in it has to leave.
            self._rendezvous.break_up(generation)
            return None
        if not self.gather(generation, "member", assignment.names, version):
            return None
        members = tuple(map(Member.from_bytes, self._rendezvous.read(generation, "member", assignment.names)))
        decision = agree(members)
        self._rendezvous.publish(generation, "ready")
        if not self.gather(generation, "ready", assignment.names, version):
            return None
        formed = self._connect(generation, assignment, members, decision, states, version)
        if formed is None:
            self._rendezvous.break_up(generation)
            return None
        states[assignment.stages].adopt(decision.version)
        self._rendezvous.mark_begun()
        return formed

    def gather(
        self, generation: Generation, phase: str, names: Sequence[str], version: int | None, *, is_end: bool = False
    ) -> bool:
        """Wait until workers have written their keys of a phase.

        Whoever of them does not live meanwhile, or does not come in time, is reported.

        Parameters
        ----------
        generation, phase, names
            Keys to wait for.
        version
            Version that this worker has come to; ``None`` where it has no state, and so no say about the others.
        is_end
            Whether a newer epoch is no reason to leave, unless one of those missing is down in it.

        Returns
        -------
        bool
            ``False`` where they will not: the generation is over, or training is.

        Raises
        ------
        RendezvousError
            If they live and do not come, and this worker has no say.
        """
        began = looked = time.monotonic()
        # Keys are written once: who has written need not be looked at again.
        missing = tuple(names)
        while not self._rendezvous.has_all(generation, phase, missing):
            if self._rendezvous.is_finished() or self._rendezvous.is_over(generation):
                return False
            newer, now = self._newer(generation), time.monotonic()
            if newer is not None or now - looked > self._limits.look_s:
                looked = now
                missing = self._rendezvous.missing(generation, phase, missing)
                if newer is not None and not (is_end and all(map(newer.epoch.is_live, missing))):
                    return False
                self._report(generation, missing, version, is_late=now - began > self._limits.join_timeout_s)
            time.sleep(self._limits.pause_s(len(names)))
        return True

    def _newer(self, generation: Generation) -> Assignment | None:
        newest = self._feed.latest
        return None if newest is None or newest.number <= generation.epoch else newest

    def _report(self, generation: Generation, missing: tuple[str, ...], version: int | None, *, is_late: bool) -> None:
        """Report who does not live. A process without a state has no say: it may have been given another job's store."""
        still = missing if is_late else self._observer.still(missing)
        if still and version is not None:
            self._reporter.report_failed(generation.epoch, still, version)
        elif is_late:
            raise RendezvousError(
                f"{self._name} has waited {self._limits.join_timeout_s:g} s for {', '.join(missing[:8])}",
                hint="see that all workers of the job use the same store, and start with an empty one",
            )

    def _member(self, assignment: Assignment, states: Mapping[tuple[int, ...], TrainingState]) -> Member:
        return Member(
            name=self._name,
            incarnation=self._rendezvous.incarnation,
            position=parse_worker(assignment.epoch.position_of(self._name)),
            stages=assignment.stages,
            is_loaded=assignment.is_loaded,
            held=tuple(state.held for state in states.values()),
        )

    def _connect(
        self,
        generation: Generation,
        assignment: Assignment,
        members: tuple[Member, ...],
        decision: Decision,
        states: Mapping[tuple[int, ...], TrainingState],
        version: int | None,
    ) -> Formed | None:
        """Connect and copy; ``None`` where somebody leaves or dies meanwhile."""
        links: Links | None = None
        try:
            links = self._link(generation, assignment, members, version)
            if links is None:
                return None
            received = self._copy(generation, links, members, decision, states, version)
            # Only behind it is anything given up that another try might need: all have theirs then.
            if received is not None:
                self._rendezvous.publish(generation, "copied")
                if self.gather(generation, "copied", assignment.names, version):
                    return Formed(
                        generation=generation,
                        assignment=assignment,
                        members=members,
                        decision=decision,
                        links=links,
                        received_bytes=received,
                    )
        except LinkBrokenError as error:
            _LOG.warning("generation %s was not formed: %s", generation, error)
        if links is not None:
            links.close()
        return None

    def _copy(
        self,
        generation: Generation,
        links: Links,
        members: tuple[Member, ...],
        decision: Decision,
        states: Mapping[tuple[int, ...], TrainingState],
        version: int | None,
    ) -> int | None:
        """Give and take what was decided; the bytes taken, ``None`` where the generation is over.

        A copy may take longer than any message, and whoever is next waits for longer still. So donors say in the store when it
        is somebody's turn.

        Raises
        ------
        LinkBrokenError
            If the other side of a copy leaves.
        """
        by_position = {member.position: member for member in members}
        received = 0
        for index, copy in enumerate(decision.copies):
            state = states.get(by_position[copy.receiver].stages)
            if copy.donor == links.me:
                assert state is not None, "donors hold what they give"
                self._rendezvous.publish(generation, f"turn{index}")
                give_state(links, copy.receiver, state, decision.version)
            elif copy.receiver == links.me:
                assert state is not None, "made before the generation was joined"
                if not self.gather(generation, f"turn{index}", [by_position[copy.donor].name], version):
                    return None
                received = take_state(links, copy.donor, state, decision.version)
        return received

    def _link(
        self,
        generation: Generation,
        assignment: Assignment,
        members: tuple[Member, ...],
        version: int | None,
    ) -> Links | None:
        """Connect with all members, and look meanwhile whether they live; ``None`` where the generation is over.

        Making connections cannot be interrupted, so a thread does it, with a connection to the store of its own.

        Raises
        ------
        LinkBrokenError
            If some do not connect.
        """
        pause_s = self._limits.pause_s(len(members))
        linking = Linking(
            self._rendezvous.links_store(generation),
            [member.position for member in members],
            parse_worker(assignment.epoch.position_of(self._name)),
            backend=self._backend,
            device=self._device,
            timeout_s=self._limits.link_timeout_s,
            pause_s=pause_s,
        )
        looked = time.monotonic()
        try:
            while not linking.is_done(pause_s):
                if self._newer(generation) is not None or self._rendezvous.is_over(generation):
                    linking.abandon()
                    return None
                if time.monotonic() - looked > self._limits.look_s:
                    looked = time.monotonic()
                    self._report(generation, assignment.names, version, is_late=False)
        except BaseException:
            linking.abandon()
            raise
        return linking.links()
