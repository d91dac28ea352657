"""What ends a trial without being a mistake."""

from __future__ import annotations


class Diverged(Exception):
    """The training loss, or a metric, is no longer a finite number."""
