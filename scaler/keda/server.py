"""The gRPC server: where it listens, for how long, with which limits, and how it stops."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import structlog
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from scaler.config.settings import Address
from scaler.keda._pb import externalscaler_pb2
from scaler.keda._pb.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server
from scaler.keda.service import Service
from scaler.keda.tls import server_credentials

if TYPE_CHECKING:
    from scaler.clock import Clock
    from scaler.config.settings import TlsFiles
    from scaler.keda.observer import RpcObserver
    from scaler.store import Store

SERVICE_NAME = externalscaler_pb2.DESCRIPTOR.services_by_name["ExternalScaler"].full_name
EVERYTHING = ""  # the health protocol's name for the whole server

OPTIONS: tuple[tuple[str, int], ...] = (
    # A second instance on the same port must fail, not take every other connection (P09).
    ("grpc.so_reuseport", 0),
    # A client or a mesh may ping as often as it likes, with or without calls: the default answers
    # the third ping within five minutes with GOAWAY "too_many_pings" (K01).
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # KEDA never pings. We do, so that quiet streams survive NAT and load balancers, and so that a
    # peer that vanished is noticed within 40 s (P05).
    ("grpc.keepalive_time_ms", 30_000),
    # gRPC 1.85 never arms the first of these; the second one, for any ping, does the work.
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # All ScaledObjects share one connection (P16). Streams are bounded by the service, over all
    # connections; a bound on one connection would make unary calls wait behind quiet streams.
    ("grpc.max_concurrent_streams", 2**31 - 1),
    # etcd holds at most 1.5 MiB an object, so GetMetricSpec can answer for whatever exists.
    ("grpc.max_receive_message_length", 2 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024),
)

log = structlog.get_logger()


class GrpcServer:
    """Serves KEDA's contract, the standard health protocol and reflection on one address.

    ``options`` come after the defaults and replace those of the same name; tests use them.
    """

    def __init__(
        self,
        address: Address,
        store: Store,
        clock: Clock,
        *,
        tls: TlsFiles | None = None,
        observer: RpcObserver | None = None,
        service: Service | None = None,
        options: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self._address = address
        self._tls = tls
        self._service = service or Service(store, clock, observer=observer)
        self._options = tuple((dict(OPTIONS) | dict(options)).items())
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # stubs lack it
        self._server: aio.Server | None = None

    async def start(self) -> int:
        """Listen; return the port. Serving does not depend on anything that is scraped.

        Raises OSError ("cannot bind …") when the port is taken, InvalidSettings for TLS files that
        cannot be used.
        """
        server = aio.server(options=self._options)
        add_ExternalScalerServicer_to_server(self._service, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        port = self._bind(server, reachable(self._address))
        await server.start()
        self._server = server
        for name in (EVERYTHING, SERVICE_NAME):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        log.info(
            "gRPC serving", address=str(Address(self._address.host, port)), tls=bool(self._tls)
        )
        return port

    async def stop(self, grace: float) -> None:
        """Stop within ``grace`` seconds: say so, end streams with OK, finish open calls."""
        if self._server is None:
            return
        clock = asyncio.get_running_loop().time
        deadline = clock() + grace
        await self._health.enter_graceful_shutdown()
        if not await self._service.end_streams(grace):
            log.warning("gRPC streams cut off", grace=grace)
        await self._server.stop(max(0.0, deadline - clock()))
        self._server = None

    def _bind(self, server: aio.Server, address: Address) -> int:
        try:
            if self._tls is None:
                return server.add_insecure_port(str(address))
            return server.add_secure_port(str(address), server_credentials(self._tls))
        except RuntimeError as error:
            message = f"cannot bind {address}: is another process using the port?"
            raise OSError(message) from error


def reachable(address: Address, *, ipv6: bool | None = None) -> Address:
    """Return ``address``, or 0.0.0.0 in place of [::] where the host has no IPv6 (P09)."""
    if address.host != "::" or (has_ipv6() if ipv6 is None else ipv6):
        return address
    return Address("0.0.0.0", address.port)  # noqa: S104 - as wide as what was asked for


def has_ipv6() -> bool:
    """Tell whether this host can open an IPv6 socket; a kernel may be told not to."""
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True
