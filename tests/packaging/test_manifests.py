"""The plain manifests: they fit the image, the ports and a hardened cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dockerfile
import pytest
import yaml

import scaler
from scaler.config.settings import Settings

ROOT = Path(__file__).parents[2]
OBJECTS: dict[str, dict[str, Any]] = {
    document["kind"]: document
    for document in yaml.safe_load_all((ROOT / "deploy/kubernetes/scaler.yaml").read_text())
}
POD: dict[str, Any] = OBJECTS["Deployment"]["spec"]["template"]
CONTAINER: dict[str, Any] = POD["spec"]["containers"][0]
PORTS = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}


def test_the_objects_are_there_and_name_no_namespace() -> None:
    assert set(OBJECTS) == {"ServiceAccount", "Service", "Deployment"}
    for document in OBJECTS.values():
        assert "namespace" not in document["metadata"]


def test_the_selectors_find_the_pods() -> None:
    labels = POD["metadata"]["labels"].items()

    assert OBJECTS["Service"]["spec"]["selector"].items() <= labels
    assert OBJECTS["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels


def test_the_ports_are_those_the_process_listens_on() -> None:
    settings = Settings()
    service = {p["port"]: p["targetPort"] for p in OBJECTS["Service"]["spec"]["ports"]}
    exposed = dockerfile.read(ROOT / "Dockerfile")[-1].all("EXPOSE")

    assert {"grpc": settings.grpc_address.port, "http-metrics": settings.http_address.port} == PORTS
    assert {port: PORTS[name] for port, name in service.items()} == {6000: 6000, 8080: 8080}
    assert {int(port) for step in exposed for port in step.words} == set(PORTS.values())


def test_p12_hardened_by_default() -> None:
    pod, container = POD["spec"]["securityContext"], CONTAINER["securityContext"]

    assert pod == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["readOnlyRootFilesystem"] is True
    assert container["allowPrivilegeEscalation"] is False
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert POD["spec"]["automountServiceAccountToken"] is False
    assert "volumes" not in POD["spec"]
    assert CONTAINER["resources"]["requests"]
    assert CONTAINER["image"] == f"vllm-scaler:{scaler.__version__}"


@pytest.mark.parametrize(
    ("probe", "path"),
    [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")],
)
def test_p07_probes_work_with_and_without_tls(probe: str, path: str) -> None:
    assert CONTAINER[probe]["httpGet"] == {"path": path, "port": "http-metrics"}
