"""A name service that blocks threads, as the system's does when its servers are silent."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


class Hanging:
    """Blocks on some names until it is let go; counts who asked and how many blocked at once."""

    def __init__(self, address: str, names: Collection[str]) -> None:
        self.names = names
        self.asked: list[str] = []
        self.at_once = self.most = 0
        self.let_go = threading.Event()
        self._address = address
        self._lock = threading.Lock()

    def __call__(self, host: str) -> Sequence[str]:
        with self._lock:
            self.asked.append(host)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        if host in self.names:
            self.let_go.wait(30)
        with self._lock:
            self.at_once -= 1
        return [self._address]


@contextmanager
def hanging(address: str, *, names: Collection[str]) -> Iterator[Hanging]:
    """Return a look-up that hangs on these names, and let its threads go in the end."""
    look_up = Hanging(address, names)
    try:
        yield look_up
    finally:
        look_up.let_go.set()
