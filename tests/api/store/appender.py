"""A process of its own that appends events, as one of several servers does; see ``running_appender``."""

from __future__ import annotations

import sys

from api.errors import StaleBaseError
from api.store import Store
from tests.api.store.backends import append


def main(url: str, name: str, count: int) -> None:
    """Append events ``name-0`` onwards; print ``key epoch`` once each is durable."""
    store = Store(url)
    print("ready", flush=True)
    for i in range(count):
        key = f"{name}-{i}"
        while True:
            epoch = store.current_epoch("job")
            try:
                base = 0 if epoch is None else epoch.epoch
                done = append(store, base, idempotency_key=key, request_sha256=key, event=key.encode())
            except StaleBaseError:
                continue
            break
        print(key, done.record.epoch, flush=True)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
