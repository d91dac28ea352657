"""Finds the folders of ablate outside its package: dashboard and examples."""

from __future__ import annotations

from pathlib import Path

import ablate
from ablate.errors import AblateError
from ablate.machine.provenance import DISTRIBUTION


def shipped(installed: str, checkout: str) -> Path:
    """A folder as a wheel installs it, or as it stands in a checkout.

    Args:
        installed: its name beside the installed package.
        checkout: its name beside the package in a checkout.

    Raises:
        AblateError: neither is there.
    """
    root = Path(ablate.__file__).parents[1]
    for name in (installed, checkout):
        if (root / name).is_dir():
            return root / name
    raise AblateError(f"{root} has no folder {installed}; install {DISTRIBUTION} again")
