"""Whatever a stranger writes, reading it ends in a policy, a report or our own error."""

from __future__ import annotations

import re
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.config.durations import format_duration, parse_duration
from scaler.config.keys import OWN_KEYS
from scaler.config.manifest import read_manifest
from scaler.config.trigger import parse_trigger
from scaler.errors import InvalidTrigger

# Pieces that readers look for, so that more than the first check is reached.
WRITTEN = """
    http:// https://[ ::1] :80 @ / .. % , * - ? 0 9 1-5 L # { } [ ] & ! | > : 1h ms off auto nan 1e9
    DE DE-BY US-ZZ UTC EST 2026-02-30 2026-12-24 timezone: start: desiredReplicas:
"""
PIECES = st.sampled_from(WRITTEN.split())
TEXTS = st.text(max_size=40) | st.lists(
    PIECES | st.sampled_from([" ", "\n", "\t"]), max_size=12
).map("".join)

BREAKS = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # YAML 1.1, section 5.4


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(OWN_KEYS)) | TEXTS, TEXTS, max_size=8))
def test_metadata_is_a_policy_or_an_invalid_trigger(metadata: dict[str, str]) -> None:
    with suppress(InvalidTrigger):
        policy, warnings = parse_trigger(metadata)
        assert hash(policy) == hash(parse_trigger(metadata)[0])
        assert all(isinstance(warning, str) for warning in warnings)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_a_manifest_is_a_report_whose_lines_exist(text: str) -> None:
    spec = "apiVersion: keda.sh/v1\nkind: ScaledObject\nspec:\n  triggers:\n  - type: external\n"
    for document in (text, f"{spec}    metadata:\n      scalerAddress: a\n      schedule: {text}"):
        report = read_manifest(document)
        assert report.remarks
        lines = len(BREAKS.findall(document)) + 2
        assert all(1 <= remark.line <= lines for remark in report.remarks)
        assert all(str(remark).isprintable() for remark in report.remarks)


@given(st.integers(0, 10**9).map(lambda milliseconds: milliseconds / 1000))
def test_a_formatted_duration_reads_as_itself(seconds: float) -> None:
    assert abs(parse_duration(format_duration(seconds)) - seconds) < 0.001
