"""Calls that are refused, and the words they are refused with.

KEDA treats every error alike; its text goes to a log and a Kubernetes event. Events with the same
text are counted as one, so a text is short, stable, and without secrets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from scaler.errors import InvalidTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.errors import Problem, TooManyTriggers

LONGEST_TEXT = 1000  # bytes; a status text is sent percent-encoded in at most 8 KiB of trailers
MOST_METADATA_BYTES = 128 * 1024
LONGEST_NAME = 253  # characters of a Kubernetes object name


class Refused(Exception):
    """A call that ends with ``code`` and the sentence ``details``. Never leaves this package."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self.code = code
        self.details = details
        super().__init__(f"{code.name}: {details}")


def refused(error: InvalidTrigger | TooManyTriggers) -> Refused:
    """Return the refusal that tells the caller about ``error``."""
    if isinstance(error, InvalidTrigger):
        return Refused(grpc.StatusCode.INVALID_ARGUMENT, describe(error.problems))
    return Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))


def check_bounds(namespace: str, name: str, metadata: Mapping[str, str]) -> None:
    """Raise Refused (INVALID_ARGUMENT) for what is not worth remembering, let alone parsing."""
    for field, value in (("namespace", namespace), ("name", name)):
        if not 0 < len(value) <= LONGEST_NAME:
            text = f"{field} of the ScaledObject: {len(value)} characters, not 1 to {LONGEST_NAME}"
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, text)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())
    if size > MOST_METADATA_BYTES:
        text = f"scalerMetadata is {size} bytes long; at most {MOST_METADATA_BYTES} are read"
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, text)


def describe(problems: Sequence[Problem]) -> str:
    """Return all problems in one line, or as many as fit and how many do not."""
    texts = [str(problem) for problem in problems]
    for shown in range(len(texts), 0, -1):
        left = len(texts) - shown
        text = "; ".join(texts[:shown]) + (f"; and {left} more" if left else "")
        if len(text.encode()) <= LONGEST_TEXT:
            return text
    return shorten("; ".join(texts))


def shorten(text: str) -> str:
    """Return ``text`` cut to what a status carries."""
    raw = text.encode()
    if len(raw) <= LONGEST_TEXT:
        return text
    return raw[: LONGEST_TEXT - 3].decode(errors="ignore") + "…"
