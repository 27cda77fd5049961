"""Draw ``stand-up.svg``: which signal sees the morning first, on our recording of a real H200.

    python docs/pictures/stand_up.py            # writes the picture
    python docs/pictures/stand_up.py --check    # fails when the picture is not current

The recorded server is scraped once a second of recorded time and the production core decides.
Targets come from the curve files alone: the last level of ``vllm bench serve`` whose p95 TTFT is
within 3 s (128 requests in flight, 39,649 tokens/s).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from scaler.core.decide import decide, initial_state
from scaler.core.model import Latency, Now, PodLife, PodObservation, PodSample, Signal, Snapshot
from scaler.core.policy import TriggerPolicy
from scaler.vllm.exposition import read_exposition
from scaler.vllm.recording import read_recording

HERE = Path(__file__).parent
PICTURE = HERE / "stand-up.svg"
RECORDING = HERE.parents[1] / "scaler/demo/data/h200-8b.standup.metrics.jsonl.xz"
POLICY = TriggerPolicy(target_in_flight=128, target_token_rate=39649, target_ttft=3.0)
SECONDS = 75
RECENT = 5  # seconds over which the recorded mean TTFT is taken

WIDTH, LEFT, RIGHT, BOTTOM = 860, 60, 20, 590
SVG = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {BOTTOM}" role="img" '
    'font-family="system-ui, sans-serif" font-size="13">'
)
STYLE = (
    "<style>.grid{stroke:#d9d9d9} text{fill:#333} "
    ".mark{paint-order:stroke;stroke:#fff;stroke-width:5px}</style>"
)
X_AXIS = "seconds; load rises from 30 s to 50 s"
COLOURS = {
    "desired": "#1a1a1a",
    "concurrency": "#0b6e4f",
    "throughput": "#2f6fde",
    "queue": "#c0392b",
    "TTFT": "#7d3c98",
}


@dataclass(frozen=True)
class Moment:
    """One second of the recording: replicas needed by signal, the answer, the mean TTFT."""

    at: float
    needed: dict[str, float]
    ttft: float | None


def moments() -> list[Moment]:
    """Play the recording through the core."""
    state = initial_state(POLICY)
    found: list[Moment] = []
    totals: list[tuple[float, float, float]] = []
    for number, scrape in enumerate(read_recording(RECORDING)):
        sample = read_exposition(scrape.body.encode())
        if not isinstance(sample, PodSample):
            raise TypeError(f"the recording's scrape {number} is {sample}")
        begun = totals[0][0] if totals else scrape.at
        if scrape.at - begun > SECONDS:
            break
        seen = sample.models["llama-8b"].latencies[Latency.TTFT]
        totals.append((scrape.at, seen.sum, seen.count))
        pod = PodObservation("pod", PodLife.READY, sample, scrape.at)
        now = Now(datetime.fromtimestamp(scrape.at, tz=UTC), scrape.at)
        decision, state = decide(Snapshot(number, (pod,), 19.0), state, POLICY, now)
        needed = {
            signal.value: decision.signals[signal].needed
            for signal in (Signal.CONCURRENCY, Signal.THROUGHPUT, Signal.QUEUE)
            if signal in decision.signals
        }
        needed["desired"] = decision.desired
        found.append(Moment(scrape.at - begun, needed, mean_ttft(totals)))
    return found


def mean_ttft(totals: list[tuple[float, float, float]]) -> float | None:
    """Return the mean TTFT of the last seconds, None when nobody got a first token."""
    at, total, count = totals[-1]
    old = next(t for t in totals if t[0] >= at - RECENT - 0.5)
    return (total - old[1]) / (count - old[2]) if count > old[2] else None


def first(found: list[Moment], name: str, limit: float) -> float:
    """Return when a series first reaches ``limit``."""
    return next(m.at for m in found if m.needed.get(name, 0.0) >= limit)


# --- the drawing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """A plot area: its top and height in pixels, its largest value and the unit of its axis."""

    top: int
    height: int
    most: float
    label: str
    step: float

    def x(self, seconds: float) -> float:
        """Return the pixel of a time."""
        return LEFT + seconds / SECONDS * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the pixel of a value; what is over the top runs along the top."""
        return self.top + self.height * (1 - min(value, self.most) / self.most)

    def frame(self) -> list[str]:
        """Return the grid and its labels."""
        parts = []
        for number in range(int(self.most / self.step) + 1):
            value = number * self.step
            y = self.y(value)
            parts.append(
                f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" class="grid"/>'
                f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
            )
        middle = self.top + self.height / 2
        parts.append(
            f'<text transform="translate(18 {middle:.0f}) rotate(-90)" text-anchor="middle">'
            f"{self.label}</text>"
        )
        return parts

    def line(self, name: str, points: list[tuple[float, float]], *, step: bool = False) -> str:
        """Return a series as a path."""
        path = ""
        for seconds, value in points:
            x, y = self.x(seconds), self.y(value)
            if path:
                path += f" H {x:.1f} V {y:.1f}" if step else f" L {x:.1f} {y:.1f}"
            else:
                path = f"M {x:.1f} {y:.1f}"
        width = 3 if step else 2
        return f'<path d="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="{width}"/>'


def mark(at: float, text: str, name: str, row: int) -> str:
    """Return a vertical line through both panels with its words."""
    x = LEFT + at / SECONDS * (WIDTH - LEFT - RIGHT)
    y = 76 + 18 * row
    return (
        f'<line x1="{x:.1f}" y1="{y - 4}" x2="{x:.1f}" y2="{BOTTOM - 40}" '
        f'stroke="{COLOURS[name]}" stroke-dasharray="4 4"/>'
        f'<text x="{x - 6:.1f}" y="{y}" text-anchor="end" class="mark" '
        f'style="fill:{COLOURS[name]}">{text}</text>'
    )


def draw(found: list[Moment]) -> str:
    """Return the picture."""
    replicas = Panel(70, 300, 6, "replicas needed", 1)
    seconds = Panel(400, 150, 6, f"mean TTFT, last {RECENT} s (s)", 2)
    series = [
        replicas.line(name, [(m.at, m.needed[name]) for m in found if name in m.needed])
        for name in ("throughput", "queue", "concurrency")
    ]
    series.append(replicas.line("desired", [(m.at, m.needed["desired"]) for m in found], step=True))
    series.append(seconds.line("TTFT", [(m.at, m.ttft) for m in found if m.ttft is not None]))
    slow = next(m.at for m in found if m.ttft is not None and m.ttft > 1.0)
    marks = [
        mark(first(found, "concurrency", 2.0), "concurrency asks for two", "concurrency", 0),
        mark(first(found, "queue", 2.0), "queue asks for two", "queue", 1),
        mark(slow, "mean TTFT passes 1 s", "TTFT", 2),
    ]
    ticks = [
        f'<text x="{replicas.x(at):.1f}" y="{BOTTOM - 18}" text-anchor="middle">{at}</text>'
        for at in range(0, SECONDS + 1, 15)
    ]
    legend = "".join(
        f'<rect x="{LEFT + 150 * n}" y="36" width="22" height="4" fill="{COLOURS[name]}"/>'
        f'<text x="{LEFT + 28 + 150 * n}" y="42">{words}</text>'
        for n, (name, words) in enumerate(
            {
                "desired": "the answer",
                "concurrency": "concurrency",
                "throughput": "throughput",
                "queue": "queue (waiting / 5)",
            }.items()
        )
    )
    title = "One H200, Llama 8B, a morning stand-up: who sees it first"
    parts = [
        SVG,
        f"<title>{title}</title>",
        STYLE,
        f'<rect width="{WIDTH}" height="{BOTTOM}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="16" font-weight="600">{title}</text>',
        legend,
        *replicas.frame(),
        *seconds.frame(),
        *series,
        *marks,
        *ticks,
        f'<text x="{WIDTH - RIGHT}" y="{BOTTOM - 2}" text-anchor="end">{X_AXIS}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Write or check the picture."""
    picture = draw(moments())
    if sys.argv[1:] == ["--check"]:
        current = PICTURE.read_text(encoding="utf-8") == picture
        print("current" if current else f"{PICTURE.name} is not current: run {Path(__file__).name}")
        return 0 if current else 1
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
