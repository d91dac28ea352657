"""P values of several tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def holm(raw: Sequence[float], family: int) -> list[float]:
    """Returns p values adjusted for a family (Holm 1979).

    The result equals that of statsmodels' `multipletests`, which runs the garbage
    collector at each call and so takes 70 ms.
    """
    order = np.argsort(raw, kind="stable")
    left = family - np.arange(len(raw))
    adjusted = np.empty(len(raw))
    adjusted[order] = np.minimum(
        np.maximum.accumulate(np.asarray(raw)[order] * left), 1.0
    )
    return [float(p) for p in adjusted]
