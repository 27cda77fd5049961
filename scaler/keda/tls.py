"""The gRPC server's certificates, read again when their files change.

gRPC asks for them at each new connection; those that are open keep what they began with. A file
that cannot be used never replaces one that can.
"""

from __future__ import annotations

import ssl
import threading
from typing import TYPE_CHECKING

import grpc
import structlog

from scaler.errors import InvalidSettings, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from scaler.config.settings import TlsFiles

    Stamp = tuple[tuple[int, int, int], ...]

log = structlog.get_logger()


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Return credentials that follow ``files``; with a client CA, clients must show a certificate.

    Raises InvalidSettings when the files cannot be used now.
    """
    certificates = Certificates(files)
    return grpc.dynamic_ssl_server_credentials(
        certificates.first,
        certificates.changed,  # type: ignore[arg-type]  # the stubs lack "None: no change"
        require_client_authentication=files.client_ca is not None,
    )


class Certificates:
    """Reads the files; keeps what was good last.

    ``first`` is what to start with. Raises InvalidSettings when that cannot be had.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()  # gRPC asks from its own threads
        self._complaint = ""
        try:
            self._stamp = _stamp(files)
            self.first = _load(files)
        except (OSError, ValueError) as error:
            raise InvalidSettings([_problem(files, error)]) from error

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificates if the files changed to something that works, else None."""
        with self._lock:
            try:
                stamp = _stamp(self._files)
                if stamp == self._stamp:
                    return None
                fresh = _load(self._files)
                if stamp != _stamp(self._files):
                    return None  # written to while we read: the next connection looks again
            except (OSError, ValueError) as error:
                self._complain(error)
                return None
            self._stamp = stamp
            self._complaint = ""
            log.info("certificate replaced", cert=str(self._files.cert))
            return fresh

    def _complain(self, error: OSError | ValueError) -> None:
        complaint = str(_problem(self._files, error))
        if complaint != self._complaint:
            self._complaint = complaint
            log.error("certificate not replaced; the last good one stays", problem=complaint)


def _load(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    """Read and check the files. Raises OSError (ssl.SSLError is one) or ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # An encrypted key would otherwise ask for its password on the terminal.
    context.load_cert_chain(files.cert, files.key, password=lambda: b"")
    authority = None
    if files.client_ca is not None:
        authority = files.client_ca.read_bytes()
        context.load_verify_locations(cadata=authority.decode("ascii"))
    return grpc.ssl_server_certificate_configuration(
        [(files.key.read_bytes(), files.cert.read_bytes())], authority
    )


def _paths(files: TlsFiles) -> tuple[Path, ...]:
    paths = (files.cert, files.key, files.client_ca)
    return tuple(path for path in paths if path is not None)


def _stamp(files: TlsFiles) -> Stamp:
    """Return what changes with the content; Kubernetes swaps a link, so the inode changes too."""
    stats = [path.stat() for path in _paths(files)]
    return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


def _problem(files: TlsFiles, error: OSError | ValueError) -> Problem:
    named = ", ".join(str(path) for path in _paths(files))
    return Problem("tls", None, f"cannot use {named}: {error}")
