"""Static endpoints: comma-separated base URLs -> a normalised tuple without repeats."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from scaler.config.keys import ENDPOINTS
from scaler.config.values import is_url_path

if TYPE_CHECKING:
    from scaler.config.findings import Findings

MAX_ENDPOINTS = 2000
SCHEMES = ("http", "https", "dns+http", "dns+https")

_DEFAULT_PORTS = {"http": 80, "https": 443, "dns+http": 80, "dns+https": 443}
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?", re.ASCII)
_LOOKS_NUMERIC = re.compile(r"[0-9.]+")
# As ``ipaddress`` reads it, without leading zeros, in a fifth of the time: there may be thousands.
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
# Where a secret could stand: before "@", behind "?" or "#".
_HIDING_PLACES = re.compile(r"[@?#]")


def read_endpoints(text: str, findings: Findings) -> tuple[str, ...]:
    """Return the endpoints in order of first mention. An empty text means that there are none."""
    urls = [url for part in text.split(",") if (url := part.strip())]
    if len(urls) > MAX_ENDPOINTS:
        findings.refuse(ENDPOINTS, None, f"must be at most {MAX_ENDPOINTS}, got {len(urls)}")
        return ()
    found: dict[str, None] = {}
    for url in urls:
        shown = None if _HIDING_PLACES.search(url) else url
        try:
            found.setdefault(_normalise(url))
        except ValueError as error:
            findings.refuse(ENDPOINTS, shown, str(error))
            continue
        if url.rstrip("/").endswith("/v1"):
            message = "ends in /v1: vLLM serves its metrics beside it, not below"
            findings.warn(ENDPOINTS, shown, message)
    return tuple(found)


def _normalise(url: str) -> str:
    """Return one base URL in its plainest form. Raises ValueError with what is allowed."""
    parts = _split(url)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"must be a base URL that begins with one of {', '.join(SCHEMES)}")
    if "@" in parts.netloc:
        raise ValueError("must not carry a user or password; mount credentials into the scaler")
    if "?" in url or "#" in url:
        raise ValueError("must be a base URL without query or fragment")
    host = _host(parts)
    path = parts.path.rstrip("/")
    if path and not is_url_path(path):
        raise ValueError("must have a plain path, without spaces or '..'")
    if path.endswith("/metrics"):
        raise ValueError("must be a base URL: where the metrics are is what metricsPath says")
    port = _port(parts)
    suffix = "" if port in {None, _DEFAULT_PORTS[parts.scheme]} else f":{port}"
    return f"{parts.scheme}://{host}{suffix}{path}"


def _split(url: str) -> SplitResult:
    if not url.isprintable():
        raise ValueError("must be printable")
    try:
        return urlsplit(url)
    except ValueError:
        raise ValueError("must be a URL such as http://[fd00::1]:8000") from None


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    bracketed = "[" in parts.netloc
    if "%" in host:
        raise ValueError("must have a plain IPv6 address, without a zone")
    if not bracketed and _IPV4.fullmatch(host):
        return host
    if bracketed or _LOOKS_NUMERIC.fullmatch(host):
        try:
            return f"[{ipaddress.IPv6Address(host)}]"
        except ValueError:
            raise ValueError("must name a host or a complete IP address") from None
    if _HOST.fullmatch(host) is None:
        raise ValueError("must name a host, such as http://vllm-0.vllm:8000")
    return host


def _port(parts: SplitResult) -> int | None:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("must have a port from 1 to 65535")
    return port
