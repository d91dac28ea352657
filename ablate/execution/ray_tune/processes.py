"""The processes of a local Ray without which it can start no worker."""

from __future__ import annotations

from collections.abc import Sequence

import ray

from ablate.text import advice

ESSENTIAL = ("raylet", "gcs_server")


def died(names: Sequence[str]) -> str:
    """Returns the message for the death of processes of Ray.

    One of them may have died because of another, so all are named.
    """
    who = "process" if len(names) == 1 else "processes"
    return (
        f"Ray's {who} {', '.join(names)} died: killed, or out of"
        f" memory. No stored result is lost. Go on with: {advice.command('resume')}"
    )


def dead_parts() -> list[str]:
    """Returns the dead processes without which this Ray can start no worker."""
    node = getattr(ray._private.worker, "_global_node", None)
    if node is not None:
        return [name for name, _ in node.dead_processes() if name in ESSENTIAL]
    return []
