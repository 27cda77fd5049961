"""Writes derived families as exposition text, without the library's objects in between.

prometheus_client builds a dictionary and a tuple for each sample and escapes each label each time:
with 500 triggers half a second in which the event loop, waiting for the interpreter lock, answers
KEDA up to 20 ms late (``benchmarks/exposition.py``). This takes a fifth of that and yields small
pieces, so that the lock can change hands in between. Tests hold its output against the library's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from prometheus_client.utils import floatToGoString

from scaler.exporter.family import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scaler.exporter.family import Family, Scene


TRIGGERS_A_PIECE = 50  # about a millisecond, of the family with the most series


def labels_text(names: Sequence[str], values: Sequence[str]) -> str:
    """Return ``name="value",…``, escaped."""
    return ",".join(
        f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)
    )


def identity_text(values: Sequence[str]) -> str:
    """Return the labels that every derived series of a trigger has."""
    return labels_text(IDENTITY, values)


def header(name: str, documentation: str, *, openmetrics: bool) -> str:
    """Return the HELP and TYPE lines; OpenMetrics names a counter without its ``_total``."""
    kind = "counter" if name.endswith("_total") else "gauge"
    if openmetrics:
        name = name.removesuffix("_total")
    return f"# HELP {name} {documentation}\n# TYPE {name} {kind}\n"


def write_family(
    family: Family, scenes: Sequence[tuple[str, Scene | None]], *, openmetrics: bool
) -> Iterator[str]:
    """Yield one family of all triggers; ``scenes`` pairs each identity with what is to be read."""
    yield header(family.full_name, family.help, openmetrics=openmetrics)
    for start in range(0, len(scenes), TRIGGERS_A_PIECE):
        yield _samples_text(family, scenes[start : start + TRIGGERS_A_PIECE])


def _samples_text(family: Family, scenes: Sequence[tuple[str, Scene | None]]) -> str:
    name, names = family.full_name, family.labels
    lines: list[str] = []
    for identity, scene in scenes:
        if scene is None:
            if family.undecided is not None:
                lines.append(sample_text(name, identity, family.undecided))
            continue
        for values, value in family.read(scene):
            if value is not None:
                more = f"{identity},{labels_text(names, values)}" if names else identity
                lines.append(sample_text(name, more, value))
    return "".join(lines)


def sample_text(name: str, labels: str, value: float) -> str:
    """Return one sample line."""
    shown: str = floatToGoString(value)  # type: ignore[no-untyped-call]  # the library left it so
    return f"{name}{{{labels}}} {shown}\n"


@lru_cache(maxsize=4096)
def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
