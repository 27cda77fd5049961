"""One bounded GET: an answer, or the cause why there is none.

Everything is bounded: the time to connect, the body on the wire and after decompression, redirects
(one, to the same origin). Whatever the network does is a ScrapeFailure; nothing here raises but
``CancelledError`` and, for the deadline the caller sets, ``TimeoutError``.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import ssl
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aiohttp
from yarl import URL

from scaler.core.model import ScrapeCause, ScrapeFailure
from scaler.vllm.credentials import BearerToken, Trust
from scaler.vllm.lookup import AdmittedAddresses, Unresolved

if TYPE_CHECKING:
    from scaler.config.settings import ScrapeSettings
    from scaler.resolver import Admits, Resolve

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final = {"Accept": "text/plain;version=0.0.4, */*;q=0.1", "User-Agent": "vllm-scaler"}
# A connection to a name is given up after this long, so that the name is looked up again.
_LONGEST_CONNECTION: Final = 30.0
_MOST_ORIGINS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Answer:
    """A 200. ``body`` is decompressed; ``redirected``: it came from another path."""

    body: bytes
    openmetrics: bool
    redirected: bool


class _Refused(Exception):
    """An answer that is none."""

    def __init__(self, cause: ScrapeCause, detail: str) -> None:
        self.failure = ScrapeFailure(cause, detail)
        super().__init__(detail)


class Fetcher:
    """GETs metrics endpoints over kept connections, at addresses that ``admits`` does not bar."""

    def __init__(self, settings: ScrapeSettings, resolve: Resolve, admits: Admits) -> None:
        self._settings = settings
        self._names = AdmittedAddresses(resolve, admits)
        self._token = BearerToken(settings.token_file) if settings.token_file else None
        self._trust = Trust(settings)
        self._timeout = aiohttp.ClientTimeout(connect=settings.connect_timeout)
        self._session: aiohttp.ClientSession | None = None
        self._connected: dict[URL, float] = {}

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def get(self, url: URL, *, gzip: bool) -> Answer | ScrapeFailure:
        """GET a URL. The caller sets the deadline for the whole."""
        try:
            return await self._get(url, gzip=gzip)
        except _Refused as error:
            return error.failure
        except Exception as error:  # noqa: BLE001 - a scrape never ends the loop; the type is told
            return failure_of(error, self._settings)

    async def _get(self, url: URL, *, gzip: bool) -> Answer:
        asked, redirected, renewed = url, False, False
        while True:
            async with self._open().get(
                asked,
                headers=self._headers(asked, gzip=gzip),
                timeout=self._timeout,
                allow_redirects=False,
                ssl=self._trust.context() if asked.scheme == "https" else True,
                server_hostname=self._settings.server_name if asked.scheme == "https" else None,
            ) as response:
                if response.status in _REDIRECTS:
                    if redirected:
                        raise _Refused(ScrapeCause.REDIRECT, "redirected more than once")
                    asked, redirected = _redirect(asked, response), True
                    continue
                if response.status == 401 and self._token and not renewed and self._token.renew():
                    renewed = True
                    continue
                _check_status(response.status)
                body = await _read(response, self._settings.max_body_bytes)
                return Answer(body, _is_openmetrics(response), redirected)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            # The caller bounds how many run at once; a limit here would hide behind its deadline.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=5, resolver=self._names),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # here, where it can be bounded
                trust_env=False,
                headers=_HEADERS,
            )
        return self._session

    def _headers(self, url: URL, *, gzip: bool) -> dict[str, str]:
        headers = {"Accept-Encoding": "gzip" if gzip else "identity"}
        if self._is_old(url):
            headers["Connection"] = "close"
        if self._token is not None:
            headers["Authorization"] = self._token.header()
        return headers

    def _is_old(self, url: URL) -> bool:
        """Say whether connections to this name are due to be made anew."""
        origin, now = url.origin(), asyncio.get_running_loop().time()
        if len(self._connected) >= _MOST_ORIGINS:
            self._connected.clear()
        if now - self._connected.setdefault(origin, now) < _LONGEST_CONNECTION:
            return False
        self._connected[origin] = now
        return not _is_address(url.raw_host or "")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _redirect(url: URL, response: aiohttp.ClientResponse) -> URL:
    try:
        target = url.join(URL(response.headers.get("Location", "")))
        same = target.origin() == url.origin()
    except ValueError:
        same = False
    if not same:
        raise _Refused(ScrapeCause.REDIRECT, f"HTTP {response.status} to another host or port")
    return target.with_fragment(None)


def _check_status(status: int) -> None:
    if status in {401, 403}:
        raise _Refused(ScrapeCause.UNAUTHORIZED, f"HTTP {status}")
    if status != 200:
        raise _Refused(ScrapeCause.HTTP_STATUS, f"HTTP {status}")


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read a body of at most ``limit`` bytes, on the wire and decompressed."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in {"identity", "gzip", ""}:
        raise _Refused(ScrapeCause.NOT_METRICS, f"Content-Encoding {encoding[:20]!r}: gzip only")
    unzip = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16) if encoding == "gzip" else None
    parts, length, wire = [], 0, 0
    async for chunk in response.content.iter_any():
        wire += len(chunk)
        part = chunk if unzip is None else unzip.decompress(chunk, limit + 1 - length)
        length += len(part)
        if length > limit or wire > limit:
            raise _Refused(ScrapeCause.TOO_LARGE, f"the body is larger than {limit} bytes")
        parts.append(part)
    if unzip is not None and not unzip.eof:
        raise _Refused(ScrapeCause.TRUNCATED, "the gzip stream is cut short")
    return b"".join(parts)


def _is_openmetrics(response: aiohttp.ClientResponse) -> bool:
    kind = response.headers.get("Content-Type", "")
    return kind.lower().lstrip().startswith("application/openmetrics-text")


# --- causes -------------------------------------------------------------------------------------


_BY_TYPE: Final[tuple[tuple[type[Exception], ScrapeCause, str], ...]] = (
    (
        aiohttp.ServerDisconnectedError,
        ScrapeCause.RESET,
        "the connection was closed without an answer",
    ),
    (aiohttp.ClientPayloadError, ScrapeCause.TRUNCATED, "the connection ended within the body"),
    (aiohttp.ClientResponseError, ScrapeCause.NOT_METRICS, "the answer is no HTTP (wrong port?)"),
    (zlib.error, ScrapeCause.NOT_METRICS, "the body is no gzip"),
)


def failure_of(error: Exception, settings: ScrapeSettings) -> ScrapeFailure:
    """Name the cause of what went wrong on the way. Details hold no header, body or secret."""
    tls = _tls_error(error)
    if tls is not None:
        return ScrapeFailure(ScrapeCause.TLS, tls)
    if isinstance(error, TimeoutError):
        return _timeout(error, settings)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        why = error.os_error
        lost = ScrapeFailure(ScrapeCause.DNS, f"cannot resolve {error.host}")
        return why.failure if isinstance(why, Unresolved) else lost
    for kind, cause, detail in _BY_TYPE:
        if isinstance(error, kind):
            return ScrapeFailure(cause, detail)
    if isinstance(error, OSError):
        return _os_failure(error)
    return ScrapeFailure(ScrapeCause.OTHER, type(error).__name__)


def _timeout(error: TimeoutError, settings: ScrapeSettings) -> ScrapeFailure:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        detail = f"no connection within {settings.connect_timeout:g} s"
    else:
        detail = f"no complete answer within {settings.timeout:g} s"
    return ScrapeFailure(ScrapeCause.TIMEOUT, detail)


def _tls_error(error: Exception) -> str | None:
    """Return what TLS found wrong; aiohttp's own errors inherit from ssl's and hide its fields."""
    inner = getattr(error, "certificate_error", None) or error.__cause__ or error
    if not isinstance(error, aiohttp.ClientSSLError) and not isinstance(inner, ssl.SSLError):
        return None
    message = getattr(inner, "verify_message", None)
    reason = getattr(inner, "reason", None) or "TLS failed"
    return str(message or reason.lower().replace("_", " ")).rstrip(".")


_RESETS: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})
_NOBODY: Final = frozenset(
    {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN}
)


def _os_failure(error: OSError) -> ScrapeFailure:
    detail = os.strerror(error.errno).lower() if error.errno else type(error).__name__
    if error.errno in _NOBODY:
        return ScrapeFailure(ScrapeCause.REFUSED, detail)
    if error.errno in _RESETS or isinstance(error, ConnectionResetError):
        return ScrapeFailure(ScrapeCause.RESET, detail)
    if error.errno == errno.ETIMEDOUT:
        return ScrapeFailure(ScrapeCause.TIMEOUT, detail)
    return ScrapeFailure(ScrapeCause.OTHER, detail)
