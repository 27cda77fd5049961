"""From the start of ``vllm-scaler serve`` until KEDA gets an answer, and what the install weighs.

    python benchmarks/start.py

Each start is a new process; the time runs until ``GetMetricSpec`` is answered over gRPC, which is
when a restarted scaler is of use to KEDA. The size is that of the run-time requirements installed
as the Dockerfile installs them, and the package: ``scripts/image.py`` holds the image to the same.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep

import grpc
from fleet import free_port

from scaler.keda._pb.externalscaler_pb2 import ScaledObjectRef

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from image import SIZE_BUDGET, sizes_of  # noqa: E402 - found through the path above

START_BUDGET = 2.0  # seconds
STARTS = 5
SPEC = "/externalscaler.ExternalScaler/GetMetricSpec"
DEADLINE = 30.0


def until_answered() -> float:
    """Start a scaler, wait for its first answer, stop it; return the seconds."""
    port = free_port()
    flags = [f"--grpc-address=127.0.0.1:{port}", "--log-level=warning"]
    flags += ["--http-address=127.0.0.1:0", "--page-address=127.0.0.1:0"]
    begun = perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "scaler", "serve", *flags], cwd=ROOT)
    try:
        while True:
            # A new channel each time: gRPC backs off for a second after a refused connection.
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                try:
                    ask = channel.unary_unary(SPEC, ScaledObjectRef.SerializeToString, None)
                    ask(ScaledObjectRef(name="llama", namespace="ai"), timeout=1)
                except grpc.RpcError:
                    took = perf_counter() - begun
                    assert process.poll() is None, "it ended"
                    assert took < DEADLINE, "it does not answer"
                    sleep(0.005)
                else:
                    return perf_counter() - begun
    finally:
        process.terminate()
        process.wait(10)


def installed_bytes() -> int:
    """Install the run-time requirements and the package into a folder; return its size."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pins = ["--require-hashes", "--requirement", str(ROOT / "requirements/run.txt")]
        subprocess.run([*pip, "--no-compile", "--target", str(tree), *pins], check=True)
        shutil.copytree(
            ROOT / "scaler", tree / "scaler", ignore=shutil.ignore_patterns("__pycache__")
        )
        compiled = [sys.executable, "-m", "compileall", "-q", "-j", "0", str(tree)]
        subprocess.run(compiled, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(tree / "bin")
        return sum(sizes_of(tree).values())


def main() -> int:
    """Print both; exit 1 when a budget is missed."""
    took = [until_answered() for _ in range(STARTS)]
    size = installed_bytes()
    worst = max(took)
    met = [worst <= START_BUDGET, size <= SIZE_BUDGET]
    words = ["met" if one else "MISSED" for one in met]
    print(
        f"process start to first answer: median {statistics.median(took):.2f} s, "
        f"max {worst:.2f} s of {STARTS}; budget {START_BUDGET:g} s  {words[0]}"
    )
    print(f"installed tree: {size / 1e6:.1f} MB; budget {SIZE_BUDGET / 1e6:.0f} MB  {words[1]}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
