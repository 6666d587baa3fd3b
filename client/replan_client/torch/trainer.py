"""Training through failures: one worker of a job, from its first iteration to the last.

A training script makes one :class:`Trainer` a process and calls :meth:`Trainer.train`::

    training = Training(
        build_stage=lambda stage: ...,                                  # nn.Module of a stage: one tensor in, one out
        make_optimizer=lambda module: torch.optim.AdamW(module.parameters(), lr=3e-4),
        data=lambda iteration, pipeline, microbatch: ...,               # inputs and labels
        loss_fn=torch.nn.functional.cross_entropy,
        num_iterations=1000,
    )
    store = torch.distributed.TCPStore(host, port, is_master=False)     # of python -m replan_client.torch.store
    with Client("http://replan:8080") as client:
        result = Trainer(client, "training-7", "0/2", store, training).train()

What it does when something fails, and why nothing is lost then, is told in ``docs/decisions/training-through-failures.md``.
"""

from __future__ import annotations

import torch
from torch.distributed import PrefixStore, Store

from replan_client.client import Client
from replan_client.operation import parse_worker
from replan_client.torch.assignments import AssignmentFeed
from replan_client.torch.formation import Formation
from replan_client.torch.heartbeat import Heartbeat, Observer
from replan_client.torch.limits import Limits
from replan_client.torch.rendezvous import Rendezvous
from replan_client.torch.reporting import Reporter
from replan_client.torch.training import Training
from replan_client.torch.training_errors import RendezvousError
from replan_client.torch.training_loop import TrainingLoop
from replan_client.torch.training_result import TrainingResult

_LAST_WORDS_S = 5.0


class Trainer:
    """One worker of a job that trains through failures.

    Parameters
    ----------
    client
        The service. Owned by the caller.
    job_id
        The job, registered by whoever starts the workers; it is waited for where they start first.
    worker
        This worker by its home, ``pipeline/slot``.
    store
        A store that all workers of the job share, and that outlives each of them. It starts empty: for a job that is started anew
        from a checkpoint, take another one, or another prefix of it.
    training
        What is trained.
    rejoin
        Whether to report this worker as recovered where it is down in the present epoch: for the process of a node that is
        back, and for one that was declared dead while it lived. Otherwise that ends it with an :class:`ExcludedError`.
    limits
        How long to wait for what.
    backend, device
        ``gloo`` and the CPU, or ``nccl`` and a GPU.

    Raises
    ------
    ProgramFormatError
        If the worker's name is none.
    """

    def __init__(
        self,
        client: Client,
        job_id: str,
        worker: str,
        store: Store,
        training: Training,
        *,
        rejoin: bool = False,
        limits: Limits | None = None,
        backend: str = "gloo",
        device: torch.device | str = "cpu",
    ) -> None:
        parse_worker(worker)
        self._client = client
        self._job_id = job_id
        self._worker = worker
        self._store = PrefixStore(f"replan/{job_id}", store)
        self._training = training
        self._rejoin = rejoin
        self._limits = limits or Limits()
        self._backend = backend
        self._device = torch.device(device)

    def train(self) -> TrainingResult:
        """Train to the last iteration, through whatever fails on the way; blocks.

        Returns
        -------
        TrainingResult
            What this worker holds then. Peers hold the same.

        Raises
        ------
        ExcludedError
            If this worker was declared dead, or its node is down, or another process has its name.
        StageLostError, StateLostError
            If nobody holds the state of some stage any more: restart from a checkpoint.
        TrainedCodeError, PeerFailedError
            If modules, optimizers, data or callbacks raised, here or in another worker: it ends training for all workers.
        NoPlanError, RendezvousError
            If no plan is made, or live workers do not come together, in the time that the limits give; or if the store is gone.
        StateFormatError, StageShapeError, UnsplittableStageError, SharedParameterError
            If the modules or optimizers are not what they have to be; the others get a :class:`PeerFailedError`.
        ClientError
            If the job was deleted, or is not registered in the time that the limits give; or if the service refuses its client,
            or what answers is not RePlan's, from the beginning or for two minutes.
        """
        try:
            return self._train()
        except torch.distributed.DistError as error:
            raise RendezvousError(
                f"the store of job {self._job_id!r} does not answer: {str(error).partition(chr(10))[0]}",
                hint="keep it in a process that outlives the workers; start anew from a checkpoint, with an empty store",
            ) from error

    def _train(self) -> TrainingResult:
        limits = self._limits
        with Heartbeat(self._store, self._worker, interval_s=limits.heartbeat_interval_s):
            feed = AssignmentFeed(
                self._client, self._job_id, self._worker, registration_s=limits.registration_timeout_s
            )
            reporter = Reporter(self._client, self._job_id, self._worker)
            rendezvous = Rendezvous(self._store, self._worker)
            observer = Observer(
                self._store, timeout_s=limits.heartbeat_timeout_s, start_timeout_s=limits.start_timeout_s
            )
            formation = Formation(
                name=self._worker,
                rendezvous=rendezvous,
                observer=observer,
                feed=feed,
                reporter=reporter,
                limits=limits,
                backend=self._backend,
                device=self._device,
            )
            loop = TrainingLoop(
                client=self._client,
                job_id=self._job_id,
                name=self._worker,
                training=self._training,
                formation=formation,
                rendezvous=rendezvous,
                feed=feed,
                reporter=reporter,
                limits=limits,
                rejoin=self._rejoin,
                device=self._device,
            )
            try:
                return loop.run()
            finally:
                loop.close()
                feed.close()
                reporter.close(patience_s=_LAST_WORDS_S)
