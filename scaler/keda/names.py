"""The name of the one metric that KEDA sees.

It becomes a path segment of the Kubernetes API, where letters are lower-cased on the way and most
punctuation is refused, and a part of the HPA, which is rewritten only when the ScaledObject is
reconciled. So: lower-case letters, digits and dashes only, and a function of the metadata alone.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

METRIC_NAME = "vllm-desired-replicas"
LONGEST_NAME = 63
DIGEST_DIGITS = 8

_INDEX_PREFIX = re.compile(r"s[0-9]+-")
_NOT_A_NAME = re.compile(r"[^a-z0-9]+")


def metric_name(metadata: Mapping[str, str]) -> str:
    """Return the metric's name: constant, or one for each ``model`` that metadata names.

    The HPA then says which model a number is about. Slugs of different models may be alike
    (``a/b`` and ``a-b``), so a digest keeps them apart (V16).
    """
    model = metadata.get("model", "").strip()
    if not model:
        return METRIC_NAME
    digest = hashlib.sha256(model.encode()).hexdigest()[:DIGEST_DIGITS]
    room = LONGEST_NAME - len(f"{METRIC_NAME}--{digest}")
    slug = _NOT_A_NAME.sub("-", model.lower()).strip("-")[:room].strip("-")
    return "-".join(part for part in (METRIC_NAME, slug, digest) if part)


def is_ours(asked: str) -> bool:
    """Tell whether ``asked`` is a name that we gave out.

    In any case and with KEDA's ``s0-`` in front, since old versions pass either. The part for the
    model is not compared: after an edit the HPA asks for the old name until the next reconcile.
    """
    name = asked.lower()
    prefix = _INDEX_PREFIX.match(name)
    return name.startswith(METRIC_NAME, prefix.end() if prefix else 0)
