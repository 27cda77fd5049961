"""Formats, and many who ask at once."""

from __future__ import annotations

import asyncio
import gzip
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from scaler.exporter.exposition import Format, Renderer, accepts_gzip, choose_format

if TYPE_CHECKING:
    from collections.abc import Iterator

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        pytest.param("", Format.TEXT, id="silent"),
        pytest.param("*/*", Format.TEXT, id="anything"),
        pytest.param(PROMETHEUS_3, Format.OPENMETRICS, id="prometheus-3"),
        pytest.param("text/plain;version=0.0.4", Format.TEXT, id="text"),
        pytest.param("text/plain;version=1.0.0;escaping=values", Format.TEXT, id="text-1.0.0"),
        pytest.param("application/openmetrics-text", Format.OPENMETRICS, id="unversioned"),
        pytest.param("Application/OpenMetrics-Text; Version=1.0.0", Format.OPENMETRICS, id="case"),
        pytest.param(
            'application/openmetrics-text;version="1.0.0"', Format.OPENMETRICS, id="quoted"
        ),
        pytest.param("application/openmetrics-text;version=0.0.1", Format.TEXT, id="draft"),
        pytest.param("application/openmetrics-text;version=2.0.0", Format.TEXT, id="future"),
        pytest.param("application/openmetrics-text;version=1.x", Format.TEXT, id="no-number"),
        pytest.param("application/openmetrics-text;q=0,text/plain", Format.TEXT, id="refused"),
        pytest.param("application/openmetrics-text;q=0.1,text/plain", Format.TEXT, id="weights"),
        pytest.param("application/openmetrics-text;q=much", Format.TEXT, id="bad-weight"),
        pytest.param("text/html,application/xhtml+xml", Format.TEXT, id="browser"),
        pytest.param(";;,=,;q", Format.TEXT, id="rubbish"),
    ],
)
def test_p13_the_format_is_negotiated(accept: str, chosen: Format) -> None:
    assert choose_format(accept) is chosen


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("identity", False),
        ("xgzip", False),
    ],
)
def test_gzip_when_accepted(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


class Gated(Collector):
    """A collector that waits for the test, and counts."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.times = 0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        self.times += 1
        self.entered.set()
        assert self.go_on.wait(10)
        yield GaugeMetricFamily("times", "How often this was collected.", value=self.times)


async def test_p14_many_who_ask_at_once_share_renderings() -> None:
    """200 scrapes during one rendering cost one more; each sees values newer than its request."""
    collector = Gated()
    with ThreadPoolExecutor(1) as thread:
        renderer = Renderer([collector], thread)
        first = asyncio.create_task(renderer.render(Format.TEXT, compress=False))
        await asyncio.to_thread(collector.entered.wait, 10)
        others = [
            asyncio.create_task(renderer.render(Format.TEXT, compress=False)) for _ in range(200)
        ]
        await asyncio.sleep(0)  # all of them have asked
        collector.go_on.set()
        bodies = await asyncio.gather(first, *others)

    assert collector.times == 2
    assert b"\ntimes 1.0\n" in bodies[0]
    assert set(bodies[1:]) == {bodies[0].replace(b"times 1.0", b"times 2.0")}


async def test_one_who_hangs_up_does_not_spoil_it_for_the_others() -> None:
    collector = Gated()
    with ThreadPoolExecutor(1) as thread:
        renderer = Renderer([collector], thread)
        impatient = asyncio.create_task(renderer.render(Format.TEXT, compress=False))
        patient = asyncio.create_task(renderer.render(Format.TEXT, compress=False))
        await asyncio.to_thread(collector.entered.wait, 10)
        impatient.cancel()
        collector.go_on.set()
        body = await patient

    assert impatient.cancelled()
    assert b"times 1.0" in body


class Broken(Collector):
    """A collector that fails the first time."""

    def __init__(self) -> None:
        self.times = 0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        self.times += 1
        if self.times == 1:
            raise RuntimeError("boom")
        yield GaugeMetricFamily("fine", "Works now.", value=1)


async def test_a_failed_rendering_does_not_stick() -> None:
    with ThreadPoolExecutor(1) as thread:
        renderer = Renderer([Broken()], thread)
        with pytest.raises(RuntimeError, match="boom"):
            await renderer.render(Format.TEXT, compress=False)
        body = await renderer.render(Format.OPENMETRICS, compress=True)

    assert gzip.decompress(body).endswith(b"fine 1.0\n# EOF\n")
