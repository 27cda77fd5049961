"""Starts and stops the image's process as a hardened cluster would; see :mod:`image`."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

UID = 1000660000  # as OpenShift hands them out
START_BUDGET = 2.0  # seconds
STOP_BUDGET = 2.0  # seconds
HANDLER_BUDGET = 0.05  # seconds of work from the start until a SIGTERM is handled
LATER = (0.2, 0.5)  # seconds after the start at which SIGTERM comes, too
TRIES = 3  # a busy machine only ever adds to a time: the best counts
STOPPED = {0, 143, -signal.SIGTERM}


class Broken(Exception):
    """A promise of the image that does not hold."""


@dataclass(frozen=True, slots=True)
class Image:
    """What the last stage leaves: where it lies, and how it starts."""

    app: Path
    command: tuple[str, ...]
    environment: Mapping[str, str]


def check_process(image: Image, work: Path) -> None:
    """Serve, stop, stop early; raise Broken where a promise does not hold."""
    cwd = work / "cwd"
    cwd.mkdir(mode=0o555)
    before = _listing(image.app)
    took = min(_serve_and_stop(image, cwd) for _ in range(TRIES))
    print(f"image: serving {took:.2f} s after its start (budget {START_BUDGET:.0f} s)")
    if took > START_BUDGET:
        raise Broken("it starts too slowly")
    worked = min(_stop_once_handled(image, cwd) for _ in range(TRIES))
    print(f"image: as PID 1 it handles SIGTERM after {worked * 1000:.0f} ms of work (budget 50)")
    if worked > HANDLER_BUDGET:
        raise Broken("a SIGTERM right after the start would be lost")
    for delay in LATER:
        _stop_early(image, cwd, delay)
    if _listing(image.app) != before or list(cwd.iterdir()):
        raise Broken("it wrote to its own tree or its working directory")
    if os.geteuid() == 0:
        left = _files_of(UID)
        if left:
            raise Broken(f"it left files behind: {left[:5]}")
        print(f"image: as UID {UID} with group 0 it wrote nothing")


def _listing(top: Path) -> dict[Path, tuple[int, int]]:
    return {p: (p.stat().st_size, p.stat().st_mtime_ns) for p in top.rglob("*")}


def _files_of(uid: int) -> list[str]:
    """Return files that UID owns in the places that anybody may write."""
    places = [place for place in ("/tmp", "/var/tmp", "/dev/shm", "/run") if Path(place).is_dir()]  # noqa: S108
    found = subprocess.run(
        ["find", *places, "-uid", str(uid)], capture_output=True, text=True, check=False
    )
    return found.stdout.split()


@contextlib.contextmanager
def _started(
    image: Image, cwd: Path, port: int, *, init: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the image's process on loopback ports; ``init`` makes it PID 1 of a namespace."""
    page = f"127.0.0.1:{port}"
    addresses = ["--grpc-address=127.0.0.1:0", f"--http-address={page}", f"--page-address={page}"]
    program = shutil.which(image.command[0], path=image.environment["PATH"]) or image.command[0]
    command = [*_confinement(init=init), program, *image.command[1:], *addresses]
    with _log(cwd).open("wb") as log:
        process = subprocess.Popen(
            command, cwd=cwd, env=dict(image.environment), stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _confinement(*, init: bool) -> list[str]:
    """Return the command that takes every right from the one that follows. Only root can."""
    if os.geteuid() != 0:
        return []
    namespace = [_tool("unshare"), "--pid", "--fork", "--kill-child"] if init else []
    identity = [f"--reuid={UID}", "--regid=0", "--clear-groups"]
    rights = ["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    return [*namespace, _tool("setpriv"), *identity, *rights]


def _log(cwd: Path) -> Path:
    return cwd.parent / "process.log"


def _tool(name: str) -> str:
    """Return a tool of util-linux; the process itself gets an almost empty PATH."""
    found = shutil.which(name)
    if found is None:
        raise Broken(f"{name} (util-linux) is needed to confine the process")
    return found


def _serve_and_stop(image: Image, cwd: Path) -> float:
    """Start it, wait until it is ready, stop it; return the seconds it took to be ready."""
    port = _free_port()
    started = time.perf_counter()
    with _started(image, cwd, port) as process:
        while not _answers(f"http://127.0.0.1:{port}/readyz"):
            if process.poll() is not None or time.perf_counter() - started > 10 * START_BUDGET:
                raise Broken(f"it does not serve:\n{_log(cwd).read_text()[-3000:]}")
            time.sleep(0.01)
        took = time.perf_counter() - started
        for path in ("/healthz", "/metrics"):
            if not _answers(f"http://127.0.0.1:{port}{path}"):
                raise Broken(f"{path} does not answer 200")
        process.terminate()
        _expect_stop(process, "when serving", cwd)
    return took


def _stop_once_handled(image: Image, cwd: Path) -> float:
    """Send SIGTERM to PID 1 as soon as it has a handler; return its CPU seconds until then.

    Before that instant the kernel drops the signal, whatever a program does.
    """
    started = time.perf_counter()
    with _started(image, cwd, _free_port(), init=True) as process:
        while not _handles_sigterm(pid := _first_process(process)):
            if time.perf_counter() - started > 10 * STOP_BUDGET:
                raise Broken("it never handles SIGTERM")
        worked = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        os.kill(pid, signal.SIGTERM)
        _expect_stop(process, "as soon as it has a handler, as PID 1", cwd)
    return worked


def _stop_early(image: Image, cwd: Path, delay: float) -> None:
    with _started(image, cwd, _free_port(), init=True) as process:
        time.sleep(delay)
        os.kill(_first_process(process), signal.SIGTERM)
        _expect_stop(process, f"{delay:g} s after its start, as PID 1", cwd)


def _expect_stop(process: subprocess.Popen[bytes], when: str, cwd: Path) -> None:
    asked = time.perf_counter()
    try:
        code = process.wait(timeout=STOP_BUDGET)
    except subprocess.TimeoutExpired:
        raise Broken(f"SIGTERM {when} did not end it within {STOP_BUDGET:g} s") from None
    print(f"image: SIGTERM {when}: exit {code} after {time.perf_counter() - asked:.2f} s")
    if code not in STOPPED:
        raise Broken(f"SIGTERM {when} gave exit {code}:\n{_log(cwd).read_text()[-3000:]}")


def _first_process(process: subprocess.Popen[bytes]) -> int:
    """Return the id of the namespace's PID 1: the child of ``unshare``, which ignores SIGTERM."""
    if os.geteuid() != 0:
        return process.pid
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else process.pid


def _handles_sigterm(pid: int) -> bool:
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - our own loopback
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
