"""TLS and mTLS with certificates that change while the server runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from structlog.testing import capture_logs

from scaler.config.settings import TlsFiles
from scaler.errors import InvalidSettings
from scaler.keda._pb.externalscaler_pb2_grpc import ExternalScalerStub

if TYPE_CHECKING:
    from pathlib import Path

    from keda.conftest import Keda, Launcher

    Key = ec.EllipticCurvePrivateKey

PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, PEM."""

    cert: bytes
    key: bytes


class Authority:
    """A certificate authority of its own; two with the same name do not trust each other."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.cert = builder.sign(self._key, hashes.SHA256()).public_bytes(PEM)

    def issue(self, *, password: bytes | None = None) -> Pair:
        """Return a pair that serves on 127.0.0.1 and identifies a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vllm-scaler")])
        builder = self._builder(subject, key)
        builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        encryption = (
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption()
        )
        return Pair(
            builder.sign(self._key, hashes.SHA256()).public_bytes(PEM),
            key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, encryption),
        )

    def _builder(self, subject: x509.Name, key: Key) -> x509.CertificateBuilder:
        start = datetime(2020, 1, 1, tzinfo=UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + timedelta(days=36_500))
        )


class Secret:
    """A directory of PEM files, replaced as the kubelet replaces a mounted Secret: by one link."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._version = 0

    def write(self, pair: Pair, client_ca: bytes | None = None) -> TlsFiles:
        self._version += 1
        version = self._root / f"v{self._version}"
        version.mkdir()
        (version / "tls.crt").write_bytes(pair.cert)
        (version / "tls.key").write_bytes(pair.key)
        if client_ca is not None:
            (version / "ca.crt").write_bytes(client_ca)
        fresh, data = self._root / "..fresh", self._root / "..data"
        fresh.symlink_to(version)
        os.replace(fresh, data)  # noqa: PTH105 - one atomic rename, as the kubelet does it
        client = data / "ca.crt" if client_ca is not None else None
        return TlsFiles(data / "tls.crt", data / "tls.key", client)


@pytest.fixture(scope="module")
def authorities() -> tuple[Authority, Authority]:
    return Authority("one"), Authority("two")


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path)


async def _asks(
    launch: Launcher, keda: Keda, trusted: Authority, client: Pair | None = None
) -> ExternalScalerStub:
    """Return a stub on a connection of its own that trusts ``trusted`` only."""
    credentials = grpc.ssl_channel_credentials(
        trusted.cert, client.key if client else None, client.cert if client else None
    )
    return ExternalScalerStub(await launch.channel(keda.target, credentials))


async def _answers(keda: Keda, stub: ExternalScalerStub) -> bool:
    try:
        answer = await stub.GetMetricSpec(keda.ref(), timeout=10)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        return False
    return len(answer.metricSpecs) == 1


async def test_a_rotated_certificate_serves_new_connections(
    launch: Launcher, secret: Secret, authorities: tuple[Authority, Authority]
) -> None:
    old, new = authorities
    keda = await launch(tls=secret.write(old.issue()))
    before = await _asks(launch, keda, old)
    assert await _answers(keda, before)
    assert not await _answers(keda, await _asks(launch, keda, new))

    with capture_logs() as logs:
        secret.write(new.issue())

        assert await _answers(keda, await _asks(launch, keda, new))
        assert not await _answers(keda, await _asks(launch, keda, old))
    assert await _answers(keda, before)  # an open connection keeps what it began with
    assert [entry["event"] for entry in logs] == ["certificate replaced"]


@pytest.mark.parametrize(
    "breakage", ["garbage", "another-key", "empty", "missing", "encrypted-key", "bad-client-ca"]
)
async def test_a_broken_file_keeps_the_old_certificate_and_is_logged_once(
    launch: Launcher,
    secret: Secret,
    authorities: tuple[Authority, Authority],
    breakage: str,
) -> None:
    old, _ = authorities
    files = secret.write(old.issue(), old.cert)
    keda = await launch(tls=files)
    client = old.issue()

    with capture_logs() as logs:
        _break(secret, old, files, breakage)
        for _ in range(3):
            assert await _answers(keda, await _asks(launch, keda, old, client))
    told = [entry["event"] for entry in logs]
    assert told == ["certificate not replaced; the last good one stays"]
    assert "PRIVATE KEY" not in str(logs)

    with capture_logs() as logs:
        secret.write(old.issue(), old.cert)
        assert await _answers(keda, await _asks(launch, keda, old, client))
    assert [entry["event"] for entry in logs] == ["certificate replaced"]


def _break(secret: Secret, authority: Authority, files: TlsFiles, breakage: str) -> None:
    good, other = authority.issue(), authority.issue()
    match breakage:
        case "garbage":
            secret.write(Pair(b"not a certificate", good.key), authority.cert)
        case "another-key":
            secret.write(Pair(good.cert, other.key), authority.cert)
        case "empty":
            secret.write(Pair(b"", b""), authority.cert)
        case "missing":
            secret.write(good, authority.cert)
            files.key.unlink()
        case "encrypted-key":
            secret.write(authority.issue(password=b"hunter2"), authority.cert)
        case "bad-client-ca":
            secret.write(good, b"-----BEGIN CERTIFICATE-----\nnonsense\n")


async def test_mutual_tls_asks_for_a_certificate_of_the_client_ca(
    launch: Launcher, secret: Secret, authorities: tuple[Authority, Authority]
) -> None:
    servers, clients = authorities
    keda = await launch(tls=secret.write(servers.issue(), clients.cert))

    assert await _answers(keda, await _asks(launch, keda, servers, clients.issue()))
    assert not await _answers(keda, await _asks(launch, keda, servers))
    assert not await _answers(keda, await _asks(launch, keda, servers, servers.issue()))


async def test_a_rotated_client_ca_decides_who_may_connect(
    launch: Launcher, secret: Secret, authorities: tuple[Authority, Authority]
) -> None:
    old, new = authorities
    keda = await launch(tls=secret.write(old.issue(), old.cert))
    assert await _answers(keda, await _asks(launch, keda, old, old.issue()))

    secret.write(old.issue(), new.cert)

    assert await _answers(keda, await _asks(launch, keda, old, new.issue()))
    assert not await _answers(keda, await _asks(launch, keda, old, old.issue()))


async def test_a_plaintext_client_gets_nothing(
    launch: Launcher, secret: Secret, authorities: tuple[Authority, Authority]
) -> None:
    keda = await launch(tls=secret.write(authorities[0].issue()))

    assert not await _answers(keda, keda.stub)


async def test_files_that_cannot_be_used_at_the_start_are_a_settings_error(
    launch: Launcher, secret: Secret, authorities: tuple[Authority, Authority]
) -> None:
    files = secret.write(authorities[0].issue())
    files.key.unlink()

    with pytest.raises(InvalidSettings) as caught:
        await launch(tls=files)

    assert str(caught.value) == (
        f"tls: cannot use {files.cert}, {files.key}: "
        f"[Errno 2] No such file or directory: '{files.key}'"
    )
