"""A proxy before PostgreSQL that loses the answer to a commit, as a broken network does."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

PORT = 5432


class LossyProxy:
    """Passes bytes between clients and a server's socket; once armed, the next commit is done and its answer lost."""

    def __init__(self, folder: Path, server_folder: Path) -> None:
        self._server = str(server_folder / f".s.PGSQL.{PORT}")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / f".s.PGSQL.{PORT}"))
        self._listener.listen()
        self._armed = threading.Event()
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.num_lost = 0

    def arm(self) -> None:
        """Lose the answer to the next commit."""
        self._armed.set()

    def close(self) -> None:
        """End all connections."""
        for opened in self._sockets:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for opened in self._sockets:
            opened.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            self._sockets += [client, server]
            lost = threading.Event()
            for source, sink, is_answer in ((client, server, False), (server, client, True)):
                thread = threading.Thread(target=self._pass_on, args=(source, sink, lost, is_answer))
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, lost: threading.Event, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if is_answer and lost.is_set():
                    self.num_lost += 1
                    break
                if not is_answer and b"COMMIT" in data and self._armed.is_set():
                    self._armed.clear()
                    lost.set()
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
