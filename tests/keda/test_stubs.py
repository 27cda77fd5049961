"""The contract on the wire, and the stubs that speak it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from scaler.keda._pb import externalscaler_pb2

ROOT = Path(__file__).parents[2]
STUBS = ROOT / "scaler/keda/_pb"

# KEDA's contract, read from its source: message -> (field, number, type).
CONTRACT = {
    "ScaledObjectRef": [
        ("name", 1, "string"),
        ("namespace", 2, "string"),
        ("scalerMetadata", 3, "message"),
    ],
    "IsActiveResponse": [("result", 1, "bool")],
    "GetMetricSpecResponse": [("metricSpecs", 1, "message")],
    "MetricSpec": [
        ("metricName", 1, "string"),
        ("targetSize", 2, "int64"),
        ("targetSizeFloat", 3, "double"),
    ],
    "GetMetricsRequest": [("scaledObjectRef", 1, "message"), ("metricName", 2, "string")],
    "GetMetricsResponse": [("metricValues", 1, "message")],
    "MetricValue": [
        ("metricName", 1, "string"),
        ("metricValue", 2, "int64"),
        ("metricValueFloat", 3, "double"),
    ],
}
CALLS = {
    "IsActive": ("ScaledObjectRef", "IsActiveResponse", False),
    "StreamIsActive": ("ScaledObjectRef", "IsActiveResponse", True),
    "GetMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse", False),
    "GetMetrics": ("GetMetricsRequest", "GetMetricsResponse", False),
    "StreamMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse", True),
}
TYPES = {1: "double", 3: "int64", 8: "bool", 9: "string", 11: "message"}


@pytest.mark.parametrize("message", CONTRACT)
def test_messages_are_those_of_the_contract(message: str) -> None:
    fields = externalscaler_pb2.DESCRIPTOR.message_types_by_name[message].fields

    assert [(f.name, f.number, TYPES[f.type]) for f in fields] == CONTRACT[message]


def test_calls_are_those_of_the_contract() -> None:
    (service,) = externalscaler_pb2.DESCRIPTOR.services_by_name.values()

    assert service.full_name == "externalscaler.ExternalScaler"
    assert {
        call.name: (call.input_type.name, call.output_type.name, call.server_streaming)
        for call in service.methods
    } == CALLS


def test_a_request_has_the_bytes_that_keda_sends() -> None:
    """Field 1 inside field 1 is the name, field 3 a map entry; computed by hand."""
    request = externalscaler_pb2.GetMetricsRequest(
        scaledObjectRef=externalscaler_pb2.ScaledObjectRef(
            name="n", namespace="s", scalerMetadata={"k": "v"}
        ),
        metricName="m",
    )

    entry = b"\x0a\x01k\x12\x01v"
    ref = b"\x0a\x01n\x12\x01s\x1a" + bytes([len(entry)]) + entry
    assert request.SerializeToString() == b"\x0a" + bytes([len(ref)]) + ref + b"\x12\x01m"


def test_p15_the_generators_are_as_old_as_the_oldest_runtime() -> None:
    """Stubs refuse a runtime older than their generator; ``scripts/lowest.sh`` imports them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = dict(requirement.split(">=") for requirement in project["dependencies"])
    grpc = re.search(
        r"GRPC_GENERATED_VERSION = '([0-9.]+)'", (STUBS / "externalscaler_pb2_grpc.py").read_text()
    )
    protobuf = re.search(
        r"Protobuf Python Version: ([0-9.]+)", (STUBS / "externalscaler_pb2.py").read_text()
    )

    assert grpc is not None
    assert protobuf is not None
    assert _version(grpc[1]) <= _version(lowest["grpcio"])
    assert _version(protobuf[1]) <= _version(lowest["protobuf"])
    assert f"grpcio-tools=={grpc[1]} " in (ROOT / "requirements/proto.txt").read_text()


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
