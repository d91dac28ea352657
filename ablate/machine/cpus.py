"""How many CPUs this process may use."""

from __future__ import annotations

import os
from pathlib import Path

# "QUOTA PERIOD" in microseconds, or "max PERIOD": what a container may use.
CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def usable_cpus() -> int:
    """Returns the CPUs of this process: within its affinity and its container's quota."""
    cpus = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cpus = len(os.sched_getaffinity(0))
    try:
        quota, period = CGROUP_LIMIT.read_text().split()
        return max(1, min(cpus, int(quota) // int(period)))
    except (OSError, ValueError):
        # There is no limit.
        return cpus
