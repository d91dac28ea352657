"""Simulated arrays, which are kept between calls and, if somebody says where, between
processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Keep = Callable[[str, Callable[[], Array]], Array]


def _nowhere(key: str, make: Callable[[], Array]) -> Array:
    return make()


# A list, so that it can be replaced.
_keepers: list[Keep] = [_nowhere]


def keep_with(keep: Keep) -> None:
    """Sets what keeps arrays: it is called with a key and what makes the array."""
    _keepers[:] = [keep]


def array(key: str, make: Callable[[], Array]) -> Array:
    """Returns the array of a key; makes it if it is not kept.

    Args:
        key: all that the array depends on, including the revision of the code.
    """
    return _keepers[0](key, make)
