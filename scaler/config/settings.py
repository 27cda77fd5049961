"""The settings of the process: what the operator of the scaler decides, not the tenant.

``commands/serve.py`` reads them from flags and ``VLLM_SCALER_…`` variables; this module holds the
plain values. Durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens. ``port`` 0 asks for any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of the gRPC server, read again when they change. ``client_ca`` demands mTLS."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """How pods are scraped.

    ``timeout`` covers the whole request: a real overloaded vLLM took 3.1 s to answer.
    ``ca_file``, ``server_name`` and ``insecure_skip_verify`` concern https endpoints;
    ``token_file`` holds a bearer token, read again when it changes, sent to the scraped host only.
    """

    interval: float = 5.0
    timeout: float = 4.0
    connect_timeout: float = 2.0
    concurrency: int = 64
    max_body_bytes: int = 4 * 1024 * 1024
    ca_file: Path | None = None
    server_name: str | None = None
    insecure_skip_verify: bool = False
    token_file: Path | None = None

    @property
    def fresh_for(self) -> float:
        """How old a sample may be and still count as fresh: three intervals and the time-out."""
        return 3 * self.interval + self.timeout


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything ``vllm-scaler serve`` can be told."""

    grpc_address: Address = Address("0.0.0.0", 6000)  # noqa: S104 - a server in a pod
    http_address: Address = Address("0.0.0.0", 8080)  # noqa: S104 - a server in a pod
    page_address: Address = Address("127.0.0.1", 8081)
    scrape: ScrapeSettings = ScrapeSettings()
    allow_endpoints: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    state_dir: Path | None = None
    log_format: Literal["json", "console"] = "json"
    log_level: str = "info"
    max_triggers: int = 2000
    registration_ttl: float = 600.0
    pod_metrics: bool = False  # one series a pod and family: know your fleet's size
