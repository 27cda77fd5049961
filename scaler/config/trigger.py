"""Scaler metadata of a ScaledObject -> a frozen TriggerPolicy, with every problem at once.

Metadata is written by a tenant and handed on by KEDA as a map of texts (``scalerMetadata``). Keys
are matched exactly. What is wrong is refused as a whole; what is merely odd is a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler.config.cross_checks import check_together
from scaler.config.endpoints import read_endpoints
from scaler.config.findings import Findings
from scaler.config.keys import ENDPOINTS, OWN_KEYS, VALUE_KEYS, passes
from scaler.config.windows import read_windows
from scaler.core.policy import TriggerPolicy
from scaler.errors import InvalidTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_KEYS = 100
MAX_CHARACTERS = 128 * 1024


def parse_trigger(metadata: Mapping[str, str]) -> tuple[TriggerPolicy, tuple[str, ...]]:
    """Return the policy, and warnings in words (unknown keys among them).

    Raises InvalidTrigger with all problems. No message shows the value of an unknown key, of a
    ``…FromEnv`` key, or a part of a URL that may hide a secret (case H06).
    """
    policy, findings = read_trigger(metadata)
    if policy is None:
        raise InvalidTrigger(findings.problems)
    return policy, tuple(str(problem) for problem in (*findings.unknown, *findings.warnings))


def read_trigger(metadata: Mapping[str, str]) -> tuple[TriggerPolicy | None, Findings]:
    """Return the policy, None when there is a problem, and everything that was found."""
    findings = Findings()
    size = sum(len(key) + len(value) for key, value in metadata.items())
    if len(metadata) > MAX_KEYS or size > MAX_CHARACTERS:
        findings.refuse(
            "metadata",
            None,
            f"must be at most {MAX_KEYS} keys and {MAX_CHARACTERS} characters, "
            f"got {len(metadata)} and {size}",
        )
        return None, findings
    for name in metadata:
        if name not in OWN_KEYS and not passes(name):
            findings.not_known(name, OWN_KEYS)
    values = _read_values(metadata, findings)
    if ENDPOINTS in metadata:
        values["endpoints"] = read_endpoints(metadata[ENDPOINTS], findings)
    values["windows"] = read_windows(metadata, findings)
    policy = TriggerPolicy(**values)
    check_together(metadata, policy, findings)
    return (None if findings.problems else policy), findings


def _read_values(metadata: Mapping[str, str], findings: Findings) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key in VALUE_KEYS:
        if key.name not in metadata:
            continue
        text = metadata[key.name].strip()
        try:
            values[key.field] = key.reader(text)
        except ValueError as error:
            # A query may carry a token.
            findings.refuse(key.name, None if "?" in text else text, str(error))
    return values
