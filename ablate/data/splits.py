"""How the training images are split."""

from __future__ import annotations


def held_out(images: int, validation: float) -> int:
    """Returns the number of training images that are held out for validation."""
    return round(images * validation)
