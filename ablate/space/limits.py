"""Bounds on cost, as in `flops: "<= 1.1 * baseline"`."""

from __future__ import annotations

import re
from typing import cast

from ablate.records import Limit, Relation

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
_PATTERN = re.compile(rf"^\s*(<=|>=|<|>)\s*(?:(?P<n>{_NUMBER})\s*(?:\*\s*(?P<b>baseline))?|(?P<only>baseline))\s*$")
EXAMPLES = '"<= 6e6", "<= 1.1 * baseline", "< baseline"'


def parse(cost: str, text: str) -> Limit | None:
    """The limit that a text says, or None if it says none."""
    match = _PATTERN.match(text)
    if match is None:
        return None
    relation = match.group(1)
    return Limit(cost, cast(Relation, relation), float(match["n"] or 1), of_baseline=bool(match["b"] or match["only"]))
