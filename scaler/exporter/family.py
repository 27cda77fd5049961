"""What an exported family is, and how one is read from a decision.

A reader gives nothing where the value is not known, so an unknown is an absent series and never a
zero. The tables are in ``decision_families``, ``pod_families`` and ``fleet_families``;
``docs/metrics.md`` says the same to people, and a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler.core.model import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scaler.core.model import Decision
    from scaler.core.policy import TriggerPolicy
    from scaler.store import Usage

    # (label values, value); None is "not known" and gives no series.
    Points = Iterable[tuple[tuple[str, ...], float | None]]

PREFIX = "vllm_scaler_"
IDENTITY = ("namespace", "scaledobject", "trigger")
LABEL_LIMIT = 253  # characters, the longest Kubernetes name; models and reasons come from outside


@dataclass(frozen=True, slots=True)
class Scene:
    """What a reader may look at. ``age``: seconds since the decision was made."""

    decision: Decision
    policy: TriggerPolicy
    usage: Usage
    age: float


@dataclass(frozen=True, slots=True)
class Family:
    """One exported family: a gauge, or a counter where its name ends in ``_total``.

    ``read`` yields (values of ``labels``, value). ``undecided`` is the value of a trigger that is
    refused or has no decision yet, where that can be said.
    """

    name: str
    help: str
    read: Callable[[Scene], Points]
    labels: tuple[str, ...] = ()
    undecided: float | None = None

    @property
    def full_name(self) -> str:
        """The name as exposed."""
        return PREFIX + self.name


def one(read: Callable[[Scene], float | None]) -> Callable[[Scene], Points]:
    """Return the reader of a family without labels of its own."""
    return lambda scene: (((), read(scene)),)


def label_value(text: str) -> str:
    """Return ``text`` as a label value: bounded, and encodable whatever a pod sent."""
    return text[:LABEL_LIMIT].encode("utf-8", "replace").decode("utf-8")


def pods_are_known(decision: Decision) -> bool:
    """Whether the decision saw the list of pods: without it every count is unknown, not zero."""
    return decision.reason is not Reason.CANNOT_LIST_PODS
