"""Student's t distribution, from scipy.

scipy takes a quarter of a second to load, and most tables need none of it. So it loads
at the first call.
"""

from __future__ import annotations

from typing import Any


def probability(freedom: Any, value: Any) -> Any:
    """Returns the probability of a value at or below this one.

    Args:
        freedom: degrees of freedom; a number or an array.
        value: a number, or an array that fits `freedom`.

    Returns:
        A numpy number, or an array.
    """
    from scipy import special

    return special.stdtr(freedom, value)


def quantile(freedom: Any, level: Any) -> Any:
    """Returns the value that is not exceeded with this probability.

    The inverse of `probability`; arguments and result are alike.
    """
    from scipy import special

    return special.stdtrit(freedom, level)
