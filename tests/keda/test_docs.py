"""The page for operators says what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from scaler.config.manifest import read_manifest
from scaler.config.trigger import MAX_KEYS
from scaler.keda import names, refusal, server, service
from scaler.store import Store

PAGE = (Path(__file__).parents[2] / "docs/keda.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=["external", "external-push", "tls"])
def test_examples_are_beyond_remark(example: str) -> None:
    report = read_manifest(example)

    assert (report.triggers, report.remarks) == (1, ())


def test_bounds_and_times_are_those_of_the_code() -> None:
    options = dict(server.OPTIONS)
    limits = {name: p.default for name, p in inspect.signature(Store.__init__).parameters.items()}
    facts = [
        f"| triggers (`--max-triggers`) | {limits['limit']};",
        f"forgotten {limits['ttl'] / 60:.0f} minutes",
        f"| open streams | {service.MOST_STREAMS},",
        f"| {refusal.MOST_METADATA_BYTES // 1024} KiB, {MAX_KEYS} keys |",
        f"| one message | {options['grpc.max_receive_message_length'] // 2**20} MiB,",
        f"| error texts | {refusal.LONGEST_TEXT} bytes |",
        f"waits up to {service.FIRST_WAIT_SECONDS:g} s",
        f"answered within {service.DEADLINE_SECONDS:g} s",
        f"connections every {options['grpc.keepalive_time_ms'] // 1000} s",
        f"does not answer within {options['grpc.http2.ping_timeout_ms'] // 1000} s",
        f"The name is `{names.METRIC_NAME}`",
        f"`{server.SERVICE_NAME}`",
    ]

    assert [fact for fact in facts if fact not in PAGE] == []


def test_every_code_that_getmetrics_answers_with_is_explained() -> None:
    told = set(re.findall(r"^\| `([A-Z_]+)` \|", PAGE, re.MULTILINE))
    documented = inspect.getdoc(service.Service.GetMetrics) or ""

    assert told == set(re.findall(r"\b[A-Z]+_?[A-Z]+\b", documented)) - {"KEDA"}
