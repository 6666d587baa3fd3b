"""Errors of training through failures.

::

    ClientError                    (code)
    +-- ExcludedError              worker_excluded     this process is not part of the job any more
    +-- StateLostError             state_lost          no live worker of a slot holds a state that the others can go on from
    +-- RendezvousError            rendezvous_failed   live workers that do not come together
    |   +-- MemberRecordError      record_malformed    what a worker published cannot be read
    +-- StateFormatError           state_malformed     a state that cannot be copied, or is not that of these modules
    +-- TrainedCodeError           trained_code_failed the modules, the data or a callback raised
    +-- PeerFailedError            peer_failed         the trained code raised in another worker
"""

from __future__ import annotations

from replan_client.errors import ClientError


class ExcludedError(ClientError):
    """The process is not part of the job any more: it was declared dead, or another one took its name."""

    code = "worker_excluded"


class StateLostError(ClientError):
    """No live worker of a slot holds a state that the others can go on from."""

    code = "state_lost"


class RendezvousError(ClientError):
    """Live workers that do not come together, or a store that does not answer."""

    code = "rendezvous_failed"


class MemberRecordError(RendezvousError):
    """What a worker published to the others cannot be read."""

    code = "record_malformed"


class TrainedCodeError(ClientError):
    """The modules, the data or a callback raised in this worker, which ends training for all; the cause is what they raised."""

    code = "trained_code_failed"


class PeerFailedError(ClientError):
    """The trained code raised in another worker, which ended training for all of them; the message names worker and error."""

    code = "peer_failed"


class StateFormatError(ClientError):
    """A state that cannot be copied, or is not that of these modules."""

    code = "state_malformed"
