"""Recordings of ``/metrics``: one JSON object a line, a line a scrape, ``.jsonl`` or ``.jsonl.xz``.

Keys: ``t`` unix seconds when the scrape began, ``ms`` how long it took, ``code`` the HTTP status
(0: no answer, ``body`` then says why) and ``body``, the whole text. Both directions stream: a
recording of any length needs the memory of one scrape.
"""

from __future__ import annotations

import json
import lzma
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_LONGEST_LINE: Final = 16 * 1024 * 1024  # bytes
# A window of 1 MiB spans some twenty bodies, which makes them small; the encoder takes 9 MB.
_PRESET: Final = 1


@dataclass(frozen=True, slots=True)
class RecordedScrape:
    """One scrape: ``at`` in unix seconds, how long it took, the status (0: none) and the body."""

    at: float
    seconds: float
    status: int
    body: str


class BadRecording(ValueError):
    """A file is no recording. The message names file, line and what is wrong."""


def read_recording(path: Path) -> Iterator[RecordedScrape]:
    """Yield the scrapes of a recording. Raises OSError and, naming the line, BadRecording."""
    number = 0
    try:
        with _open(path, "rb") as file:
            while line := file.readline(_LONGEST_LINE):
                number += 1
                if line.strip():
                    yield _decode(line)
    except (lzma.LZMAError, EOFError) as error:
        raise BadRecording(
            f"{path}, line {number + 1}: the compressed data is cut or broken"
        ) from (error)
    except ValueError as error:
        raise BadRecording(f"{path}, line {number}: {error}") from error


class RecordingWriter:
    """Appends scrapes to a new file, compressed if its name ends in ``.xz``.

    Raises FileExistsError rather than write over a recording.
    """

    def __init__(self, path: Path) -> None:
        self._file = _open(path, "xb")

    def write(self, scrape: RecordedScrape) -> None:
        """Append one scrape."""
        entry = {
            "t": round(scrape.at, 3),
            "ms": round(scrape.seconds * 1000, 1),
            "code": scrape.status,
            "body": scrape.body,
        }
        self._file.write(json.dumps(entry).encode() + b"\n")

    def close(self) -> None:
        """Finish the file; without it a compressed recording lacks its end."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _open(path: Path, mode: str) -> BinaryIO:
    if path.suffix == ".xz":
        preset = _PRESET if "x" in mode else None
        return cast("BinaryIO", lzma.LZMAFile(path, mode, preset=preset))
    return cast("BinaryIO", path.open(mode))


def _decode(line: bytes) -> RecordedScrape:
    """Read one line. Raises ValueError saying what is wrong with it."""
    if not line.endswith(b"\n") and len(line) >= _LONGEST_LINE:
        raise ValueError(f"is longer than {_LONGEST_LINE} bytes")
    try:
        entry = json.loads(line)
    except ValueError:
        raise ValueError("is no JSON") from None
    if not isinstance(entry, dict):
        raise ValueError('must be an object with "t", "ms", "code" and "body"')  # noqa: TRY004
    at, took = _number(entry, "t"), _number(entry, "ms")
    status, body = entry.get("code"), entry.get("body")
    if type(status) is not int or not 0 <= status <= 599:
        raise ValueError(f'"code" must be an HTTP status or 0, is {status!r:.40}')
    if not isinstance(body, str):
        raise ValueError('"body" must be a text')  # noqa: TRY004
    return RecordedScrape(at, took / 1000, status, body)


def _number(entry: dict[str, Any], key: str) -> float:
    value = entry.get(key)
    if type(value) not in {int, float} or not 0 <= float(cast("float", value)) < math.inf:
        raise ValueError(f'"{key}" must be a number of at least 0, is {value!r:.40}')
    return float(cast("float", value))
