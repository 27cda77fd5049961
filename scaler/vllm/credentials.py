"""What a scrape presents and whom it trusts: a bearer token and a CA, from files that may rotate.

Both are read at the start, where a mistake is an InvalidSettings, and again when their file
changes. A rotation that goes wrong half-way (an empty file, for a moment) keeps the last good one.
"""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Final

from scaler.errors import InvalidSettings, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from scaler.config.settings import ScrapeSettings

_Stamp = tuple[int, int, int]

# RFC 6750, b64token. Anything else could end the header and start another.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class BearerToken:
    """A token in a file, as Kubernetes projects it. Its value is in no message and no repr."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: _Stamp | None = None
        try:
            self._value = self._read()
        except (OSError, ValueError) as error:
            raise _invalid("--scrape-token-file", path, error) from error

    def header(self) -> str:
        """Return the Authorization header, from the newest content of the file."""
        if _stamp(self._path) != self._stamp:
            self.renew()
        return f"Bearer {self._value}"

    def renew(self) -> bool:
        """Read the file again, changed or not; say whether the token differs."""
        before = self._value
        try:
            self._value = self._read()
        except (OSError, ValueError):
            return False  # the server judges the old one: 401 is "unauthorized"
        return self._value != before

    def _read(self) -> str:
        stamp = _stamp(self._path)
        text = self._path.read_text(encoding="ascii", errors="strict").strip()
        if _TOKEN.fullmatch(text) is None:
            raise ValueError("holds no bearer token (letters, digits and ._~+/- alone)")
        self._stamp = stamp
        return text


class Trust:
    """The TLS context for https endpoints, made anew when the CA file changes.

    Without a CA file the system's authorities count; they are loaded when first needed, since that
    takes a tenth of a second.
    """

    def __init__(self, settings: ScrapeSettings) -> None:
        self._path = settings.ca_file
        self._verify = not settings.insecure_skip_verify
        self._stamp: _Stamp | None = None
        self._context: ssl.SSLContext | None = None
        if self._path is not None:
            try:
                self._context = self._make()
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                raise _invalid("--scrape-ca-file", self._path, error) from error

    def context(self) -> ssl.SSLContext:
        """Return the context to use now; the same object as long as nothing changed."""
        if self._context is None:
            self._context = self._make()
        elif self._path is not None and _stamp(self._path) != self._stamp:
            try:
                self._context = self._make()
            except (OSError, ValueError):
                return self._context
        return self._context

    def _make(self) -> ssl.SSLContext:
        stamp = None if self._path is None else _stamp(self._path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._path is not None:
            context.load_verify_locations(self._path)
            if not context.cert_store_stats()["x509"]:
                raise ValueError("holds no certificate in PEM form")
        elif self._verify:
            context.load_default_certs()
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._stamp = stamp
        return context


def _stamp(path: Path) -> _Stamp | None:
    """Return what changes when the file does, through the symbolic links of a mounted Secret."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _invalid(flag: str, path: Path, error: Exception) -> InvalidSettings:
    if isinstance(error, ssl.SSLError):
        reason = "holds no certificate in PEM form"
    elif isinstance(error, OSError):
        reason = f"cannot be read: {error.strerror}"
    elif isinstance(error, UnicodeError):
        reason = "holds no plain text"
    else:
        reason = str(error)
    return InvalidSettings([Problem(flag, str(path), reason)])
