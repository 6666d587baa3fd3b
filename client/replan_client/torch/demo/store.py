"""The store that the workers share, in a process of its own that outlives all of them."""

from __future__ import annotations

from torch.distributed import PrefixStore, TCPStore

from replan_client.torch.demo.child import Child
from replan_client.torch.demo.messages import Present
from replan_client.torch.rendezvous import Rendezvous

_LOOK_S = 0.02


def host_store(child: Child, job_id: str, worker: str) -> None:
    """Host it, and tell its port; told of an epoch, look whether ``worker`` waits in it to be let in, and say so once."""
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    child.tell(store.port)
    looks = Rendezvous(PrefixStore(f"replan/{job_id}", store), "demo")
    epoch = 0
    while True:
        told = child.hear(_LOOK_S if epoch else None)
        epoch = epoch if told is None else int(told)
        if epoch and not looks.missing(looks.present(epoch), "member", [worker]):
            child.tell(Present(worker=worker))
            epoch = 0
