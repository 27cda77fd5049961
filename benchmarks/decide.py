"""Time one decision at 6, 50 and 1,000 pods, on real samples, against the budget.

The ratio is to summing the same pods' gauges in a plain loop: what any scaler must do.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from scaler.core.decide import decide, initial_state
from scaler.core.model import Now, PodLife, PodObservation, PodSample, Snapshot
from scaler.core.policy import TriggerPolicy, Window
from scaler.vllm.exposition import read_exposition
from scaler.vllm.recording import read_recording

RECORDING = Path(__file__).parent.parent / "scaler/demo/data/h200-8b.standup.metrics.jsonl.xz"
BUDGET_MS = {6: 0.3, 50: 2.0}
POLICY = TriggerPolicy(
    target_in_flight=128,
    target_token_rate=39649,
    target_ttft=3.0,
    target_queue_time=2.0,
    windows=(Window("Europe/Berlin", "0 9 * * 1-5", "0 18 * * 1-5", 4),),
)


def samples() -> list[tuple[float, PodSample]]:
    """Every fifth second of the stand-up: (seconds, sample)."""
    found = []
    for scrape in list(read_recording(RECORDING))[::5]:
        sample = read_exposition(scrape.body.encode())
        assert isinstance(sample, PodSample)
        found.append((scrape.at, sample))
    return found


def timeline(pods: int, recorded: list[tuple[float, PodSample]]) -> tuple[float, float]:
    """Return the median milliseconds of a decision, and of the plain loop."""
    from datetime import UTC, datetime  # noqa: PLC0415 - only the benchmark's own calendar

    state = initial_state(POLICY)
    took, plain = [], []
    for sequence, (at, sample) in enumerate(recorded):
        observations = tuple(
            PodObservation(f"p{n}", PodLife.READY, replace(sample), at) for n in range(pods)
        )
        snapshot = Snapshot(sequence, observations, 19.0)
        now = Now(datetime.fromtimestamp(at, tz=UTC), at)
        begun = time.perf_counter()
        _, state = decide(snapshot, state, POLICY, now)
        took.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        sum(
            model.running + model.waiting
            for pod in observations
            if pod.sample is not None
            for model in pod.sample.models.values()
        )
        plain.append(time.perf_counter() - begun)
    return sorted(took)[len(took) // 2] * 1e3, sorted(plain)[len(plain) // 2] * 1e3


def main() -> int:
    """Print the table; exit 1 when a budget is missed."""
    recorded = samples()
    missed = 0
    print("pods  decision ms  budget ms  x plain sum of gauges")
    for pods in (6, 50, 1000):
        took, plain = timeline(pods, recorded)
        budget = BUDGET_MS.get(pods)
        verdict = "" if budget is None else ("met" if took <= budget else "MISSED")
        missed += verdict == "MISSED"
        print(f"{pods:4}  {took:11.3f}  {budget or '':>9}  {took / plain:21.1f}  {verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
