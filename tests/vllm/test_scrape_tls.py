"""https endpoints: whom to trust, under which name, and a CA that rotates (D13)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from scaler.core.model import PodSample, ScrapeCause, ScrapeFailure
from scaler.errors import InvalidSettings

if TYPE_CHECKING:
    from pathlib import Path

    from vllm.conftest import Servers

NAME = "vllm.internal"


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass(frozen=True)
class Authority:
    """A private CA that vouches for one name and no address."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), _name(name), key)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, home: Path) -> ssl.SSLContext:
        """Return what a vLLM with ``--ssl-certfile`` presents."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(NAME), self.certificate.subject, key)
        alternative = x509.SubjectAlternativeName([x509.DNSName(NAME)])
        certificate = builder.add_extension(alternative, critical=False).sign(
            self.key, hashes.SHA256()
        )
        pem = home / f"server-{certificate.serial_number}.pem"
        pem.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pem)
        return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(tz=UTC)  # noqa: TID251 - OpenSSL checks against the real clock
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
    )


async def body(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=b"vllm:num_requests_running 2\nvllm:num_requests_waiting 3\n")


async def test_d13_a_private_ca_and_a_name_that_is_not_the_address(
    servers: Servers, tmp_path: Path
) -> None:
    authority = Authority.make("ours")
    url = await servers.http(body, tls=authority.server(tmp_path))
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)

    named = servers.scraper(ca_file=ca, server_name=NAME)
    assert isinstance(await named.scrape(f"{url}/m"), PodSample)

    unnamed = await servers.scraper(ca_file=ca).scrape(f"{url}/m")
    assert unnamed == ScrapeFailure(
        ScrapeCause.TLS,
        "IP address mismatch, certificate is not valid for '127.0.0.1'",
    )


@pytest.mark.parametrize("given", ["another CA", "no CA"])
async def test_d13_an_unknown_authority_is_told_by_the_verify_error(
    servers: Servers, tmp_path: Path, given: str
) -> None:
    url = await servers.http(body, tls=Authority.make("ours").server(tmp_path))
    ca = tmp_path / "ca.pem"
    ca.write_bytes(Authority.make("theirs").pem)
    scraper = servers.scraper(ca_file=ca if given == "another CA" else None, server_name=NAME)

    assert await scraper.scrape(f"{url}/m") == ScrapeFailure(
        ScrapeCause.TLS, "unable to get local issuer certificate"
    )


async def test_d13_verification_is_skipped_on_an_explicit_word_alone(
    servers: Servers, tmp_path: Path
) -> None:
    url = await servers.http(body, tls=Authority.make("ours").server(tmp_path))

    skipping = servers.scraper(insecure_skip_verify=True)
    assert isinstance(await skipping.scrape(f"{url}/m"), PodSample)


@pytest.mark.parametrize("skip", [False, True])
async def test_d13_connections_are_kept_while_the_ca_stays(
    servers: Servers, tmp_path: Path, *, skip: bool
) -> None:
    authority = Authority.make("ours")
    peers: set[int] = set()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername")[1])
        return await body(request)

    url = await servers.http(handler, tls=authority.server(tmp_path))
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)
    scraper = servers.scraper(ca_file=ca, server_name=NAME, insecure_skip_verify=skip)
    for _ in range(3):
        assert isinstance(await scraper.scrape(f"{url}/m"), PodSample)

    assert len(peers) == 1


async def test_d13_a_rotated_ca_is_picked_up(servers: Servers, tmp_path: Path) -> None:
    first, second = Authority.make("first"), Authority.make("second")
    old = await servers.http(body, tls=first.server(tmp_path))
    new = await servers.http(body, tls=second.server(tmp_path))
    ca = tmp_path / "ca.pem"
    ca.write_bytes(first.pem)
    scraper = servers.scraper(ca_file=ca, server_name=NAME)
    assert isinstance(await scraper.scrape(f"{old}/m"), PodSample)
    assert isinstance(await scraper.scrape(f"{new}/m"), ScrapeFailure)

    ca.write_bytes(b"")  # half-way: the last good one stays
    assert isinstance(await scraper.scrape(f"{old}/m"), PodSample)

    ca.write_bytes(second.pem)
    assert isinstance(await scraper.scrape(f"{new}/m"), PodSample)
    assert isinstance(await scraper.scrape(f"{old}/m"), ScrapeFailure)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(None, "cannot be read: No such file or directory", id="missing"),
        pytest.param(b"", "holds no certificate in PEM form", id="empty"),
        pytest.param(b"hello\n", "holds no certificate in PEM form", id="text"),
    ],
)
def test_d13_a_ca_file_that_cannot_be_used_is_a_mistake_at_the_start(
    servers: Servers, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    ca = tmp_path / "ca.pem"
    if content is not None:
        ca.write_bytes(content)

    with pytest.raises(InvalidSettings) as raised:
        servers.scraper(ca_file=ca)
    assert str(raised.value).startswith("--scrape-ca-file=")
    assert str(raised.value).endswith(reason)


async def test_https_to_a_server_that_speaks_http(servers: Servers) -> None:
    url = (await servers.http(body)).replace("http://", "https://")
    outcome = await servers.scraper().scrape(f"{url}/m")

    assert isinstance(outcome, ScrapeFailure)
    assert outcome.cause is ScrapeCause.TLS


async def test_http_to_a_server_that_speaks_https(servers: Servers, tmp_path: Path) -> None:
    url = await servers.http(body, tls=Authority.make("ours").server(tmp_path))
    outcome = await servers.scraper().scrape(f"{url.replace('https://', 'http://')}/m")

    assert isinstance(outcome, ScrapeFailure)
    assert outcome.cause in {ScrapeCause.RESET, ScrapeCause.NOT_METRICS}
