"""`vllm-scaler explain` against a running page."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from scaler.commands.explain import explain
from scaler.config.settings import Address
from scaler.core.model import (
    Decision,
    Floors,
    Guard,
    Now,
    PodCounts,
    PodState,
    PodView,
    Reason,
    ScrapeCause,
    ScrapeFailure,
    Signal,
    SignalReading,
)
from scaler.exporter.http import HttpServer
from scaler.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.monotonic = 100.0

    def now(self) -> Now:
        return Now(NOON, self.monotonic)


def busy(now: Now) -> Decision:
    return Decision(
        sequence=1,
        at=now,
        valid=True,
        desired=4,
        active=True,
        reason=Reason.LOAD,
        message="concurrency needs 4",
        binding=Signal.CONCURRENCY,
        composite=4.0,
        signals={
            Signal.CONCURRENCY: SignalReading(4.0, 512.0, 128.0, 4.0),
            Signal.TTFT: SignalReading(2.4, 2.4, 3.0, None),
        },
        guards=(Guard.THROUGHPUT_CAP,),
        floors=Floors(schedule=2),
        counts=PodCounts(total=4, ready=3, fresh=3, starting=1),
        pods=(
            PodView("llama-0", PodState.FRESH, running=163.0, waiting=7.0, kv_usage=0.9, age=1.5),
            PodView(
                "llama-1\x1b[2J\u202e",
                PodState.MISSING,
                failure=ScrapeFailure(ScrapeCause.TIMEOUT, "no answer\x1b]0;within 4 s"),
            ),
        ),
    )


@contextmanager
def page(store: Store, clock: Clock) -> Iterator[str]:
    """Serve ``store`` from a thread, as another process would."""
    address = Address("127.0.0.1", 0)
    started: list[str] = []
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        server = HttpServer(address, address, store, clock, collectors=[])
        _, port = await server.start()
        started.append(f"http://127.0.0.1:{port}")
        ready.set()
        await stop.wait()
        await server.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[str]:
    """Something that is no scaler."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    clock = Clock()
    store = Store(clock)
    metadata = {"scalerAddress": "vllm-scaler.keda.svc:6000", "targetInFlight": "128"}
    store.register("chat", "llama", {**metadata, "maxReplicas": "6"}).publish(busy(clock.now()))
    store.register("rl", "judge", metadata)
    store.register("rl", "outside", metadata).refuse("host elsewhere is not allowed")
    clock.monotonic += 2.5
    with page(store, clock) as found:
        yield found


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(explain, arguments)


def test_the_whole_explanation(url: str) -> None:
    done = run("chat/llama", "--page", url)
    lines = [line.rstrip() for line in done.output.splitlines()]

    assert done.exit_code == 0
    assert lines[0].startswith("chat/llama trigger ")
    assert lines[1:-1] == [
        "Wants 4 replicas: 512 requests in flight, a replica carries 128.",
        (
            "valid, active, reason load, decided 2.5 s ago, min 0, max 6, "
            "floors: schedule 2, forecast 0, guards: throughput_cap"
        ),
        "signal       needed  observed  target  counted",
        "concurrency       4       512     128        4  binds",
        "ttft            2.4       2.4       3        -",
        "",
        "Why",
        (
            "  - Requests in flight: needs 4, and binds; 512 requests in flight, "
            "a replica carries 128."
        ),
        (
            "  - Time to first token: needs 2.4 but does not count; first tokens take 2.4 s, "
            "the promise is 3 s."
        ),
        (
            "  - Capped by throughput: the queue asked for more than the work in it is worth "
            "(drainTime 60 s)."
        ),
        "  - Schedule: at least 2 replicas now.",
        "  - Pods: 3 serving, 1 starting.",
        "",
        "Pods",
        "pod           state    running  waiting   KV  age s  last failure",
        "llama-0       fresh        163        7  0.9    1.5",
        (
            "llama-1\ufffd[2J\ufffd  missing        -        -    -      -  "
            "timeout: no answer\ufffd]0;within 4 s"
        ),
    ]


def test_nothing_of_a_tenant_reaches_the_terminal_raw(url: str) -> None:
    assert "\x1b" not in run("chat/llama", "--page", url).output


def test_json_is_what_the_page_says(url: str) -> None:
    done = run("chat/llama", "--json", VLLM_SCALER_PAGE=url + "/")
    (trigger,) = json.loads(done.output)

    assert done.exit_code == 0
    assert trigger["decision"]["desired"] == 4
    assert trigger["headline"].startswith("Wants 4 replicas")


def test_no_decision_yet(url: str) -> None:
    done = run("rl/judge", "--page", url)

    assert done.exit_code == 0
    assert "Waiting for the first look at the pods." in done.output


def test_a_refused_trigger(url: str) -> None:
    assert "Refused: host elsewhere is not allowed." in run("rl/outside", "--page", url).output


def test_an_unknown_scaled_object_lists_the_known(url: str) -> None:
    done = run("chat/lama", "--page", url)

    assert done.exit_code == 1
    assert done.output == (
        "no ScaledObject chat/lama; this scaler knows: chat/llama, rl/judge, rl/outside\n"
    )


def test_a_scaler_that_knows_nothing() -> None:
    clock = Clock()
    with page(Store(clock), clock) as empty:
        done = run("chat/llama", "--page", empty)

    assert done.exit_code == 1
    assert done.output == (
        "no ScaledObject chat/llama: KEDA has not asked this scaler about any yet\n"
    )


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = run("chat/llama", "--page", f"http://127.0.0.1:{port}")

    assert done.exit_code == 2
    assert done.output == (
        f"cannot ask the scaler at http://127.0.0.1:{port}: [Errno 111] Connection refused\n"
    )


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        pytest.param(b"<html>", 200, "its answer is no JSON", id="html"),
        pytest.param(b"\xff\xfe", 200, "its answer is no JSON", id="bytes"),
        pytest.param(b"[]", 200, "it speaks another version", id="other-json"),
        pytest.param(b'{"shape": 99}', 200, "it speaks another version", id="newer"),
        pytest.param(b"", 404, "it answers HTTP 404", id="not-found"),
    ],
)
def test_something_else_answers(body: bytes, status: int, words: str) -> None:
    with answering(body, status) as other:
        done = run("chat/llama", "--page", other)

    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.parametrize("target", ["llama", "/llama", "chat/", "a/b/c", ""])
def test_a_target_that_is_none(target: str) -> None:
    done = run(target)

    assert done.exit_code == 2
    assert "is not NAMESPACE/NAME" in done.output


def test_only_http(tmp_path: object) -> None:
    done = run("chat/llama", "--page", f"file://{tmp_path}")

    assert done.exit_code == 2
    assert "is not an http or https URL" in done.output
