"""A TCP proxy that counts HTTP/2 pings and can fall silent like a host that lost its power."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

PREFACE_BYTES = 24
FRAME_HEADER_BYTES = 9
PING, GOAWAY = 0x6, 0x7
ACK = 0x1


class Frames:
    """Counts the frames of one direction of an HTTP/2 connection by type, not acknowledgements."""

    def __init__(self, skip: int) -> None:
        self._skip = skip
        self._header = b""
        self.seen: dict[int, int] = {}

    @property
    def pings(self) -> int:
        """Pings that are no answer to another."""
        return self.seen.get(PING, 0)

    def feed(self, data: bytes) -> None:
        while data:
            if self._skip:
                eaten = min(self._skip, len(data))
                self._skip -= eaten
                data = data[eaten:]
                continue
            eaten = FRAME_HEADER_BYTES - len(self._header)
            self._header += data[:eaten]
            data = data[eaten:]
            if len(self._header) == FRAME_HEADER_BYTES:
                self._skip = int.from_bytes(self._header[:3], "big")
                kind, flags = self._header[3], self._header[4]
                if not (kind == PING and flags & ACK):
                    self.seen[kind] = self.seen.get(kind, 0) + 1
                self._header = b""


class Proxy:
    """Forwards 127.0.0.1:``port`` to the server's port, frame by frame accounted for."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._awake = asyncio.Event()
        self._awake.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.from_client: list[Frames] = []
        self.from_server: list[Frames] = []
        self.port = 0

    @property
    def goaways(self) -> int:
        """Connections that the server told to go."""
        return sum(frames.seen.get(GOAWAY, 0) for frames in self.from_server)

    def vanish(self) -> None:
        """Stop reading and writing, and close nothing."""
        self._awake.clear()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        self._writers += [writer, up_writer]
        self.from_client.append(Frames(PREFACE_BYTES))
        self.from_server.append(Frames(0))
        for source, sink, frames in (
            (reader, up_writer, self.from_client[-1]),
            (up_reader, writer, self.from_server[-1]),
        ):
            task = asyncio.create_task(self._pump(source, sink, frames))
            self._tasks.add(task)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, frames: Frames
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                await self._awake.wait()
                frames.feed(data)
                sink.write(data)
                await sink.drain()
            sink.write_eof()
