"""``/metrics`` as bytes: which format, and rendering without holding up the event loop.

prometheus_client has ``choose_encoder``, but it ignores the weights in Accept, raises on a version
that is no number, and copies the requester's version into our Content-Type. Two formats are enough:
the text format every Prometheus reads, and OpenMetrics 1.0. Our names need no escaping scheme.
"""

from __future__ import annotations

import asyncio
import zlib
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from prometheus_client.exposition import generate_latest as generate_text
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    from prometheus_client.registry import Collector

END_MARK = b"# EOF\n"
GZIP_WINDOW = 31  # zlib's code for the largest window in gzip's wrapping
GZIP_LEVEL = 4  # a fifth of the size for a third of the time of level 9


class Format(Enum):
    """An exposition format, by its Content-Type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def choose_format(accept: str) -> Format:
    """Return the format that an Accept header likes best; text when it does not say."""
    weights = {Format.TEXT: 0.0, Format.OPENMETRICS: 0.0}
    for offer in accept.split(","):
        media, parameters = _media(offer)
        wanted = None
        if media == "application/openmetrics-text":
            wanted = Format.OPENMETRICS if parameters.get("version", "1.0.0") == "1.0.0" else None
        elif media in {"text/plain", "text/*", "*/*", ""}:
            wanted = Format.TEXT
        if wanted is not None:
            weights[wanted] = max(weights[wanted], _weight(parameters))
    return Format.OPENMETRICS if weights[Format.OPENMETRICS] > weights[Format.TEXT] else Format.TEXT


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for offer in accept_encoding.split(","):
        coding, parameters = _media(offer)
        if coding == "gzip":
            return _weight(parameters) > 0
    return False


def _media(offer: str) -> tuple[str, dict[str, str]]:
    media, *rest = (part.strip().lower() for part in offer.split(";"))
    parameters = (part.partition("=") for part in rest)
    return media, {key.strip(): value.strip().strip('"') for key, _, value in parameters}


def _weight(parameters: dict[str, str]) -> float:
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 0.0


@runtime_checkable
class Writer(Protocol):
    """A collector that can write its own exposition, in pieces."""

    def write(self, *, openmetrics: bool) -> Iterator[str]:
        """Yield families in small pieces, without an end mark."""
        ...


class Renderer:
    """Renders collectors, one rendering at a time, in ``thread``.

    However many ask at once, each format is rendered at most once more than is already under way:
    those who came meanwhile share the next one. A flood of scrapes costs no more than a few (P14).
    """

    def __init__(self, collectors: Sequence[Collector], thread: Executor) -> None:
        self._collectors = tuple(collectors)
        self._gate = asyncio.Semaphore(1)
        self._thread = thread
        self._awaited: dict[tuple[Format, bool], asyncio.Task[bytes]] = {}

    async def render(self, form: Format, *, compress: bool) -> bytes:
        """Return the exposition, collected after this call began."""
        key = (form, compress)
        task = self._awaited.get(key)
        if task is None:
            task = asyncio.create_task(self._render(key))
            self._awaited[key] = task
        return await asyncio.shield(task)  # one who hangs up must not spoil it for the others

    async def _render(self, key: tuple[Format, bool]) -> bytes:
        async with self._gate:
            del self._awaited[key]  # whoever comes from here on wants newer values
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, partial(self.generate, key[0], compress=key[1])
            )

    def generate(self, form: Format, *, compress: bool) -> bytes:
        """Return the exposition; piece by piece, so that no step holds the interpreter long."""
        if not compress:
            return b"".join(self._pieces(form))
        packer = zlib.compressobj(GZIP_LEVEL, wbits=GZIP_WINDOW)
        packed = [packer.compress(piece) for piece in self._pieces(form)]
        return b"".join((*packed, packer.flush()))

    def _pieces(self, form: Format) -> Iterator[bytes]:
        openmetrics = form is Format.OPENMETRICS
        for collector in self._collectors:
            if isinstance(collector, Writer):
                for text in collector.write(openmetrics=openmetrics):
                    yield text.encode()
            else:
                generate = generate_openmetrics if openmetrics else generate_text
                yield generate(collector).removesuffix(END_MARK)
        if openmetrics:
            yield END_MARK
