"""What training draws from the socket, where the hardware counts it: NVIDIA's GPUs
(NVML) and the CPU's packages (RAPL).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

# Linux shows RAPL's counters here, of Intel's and AMD's packages alike; many systems
# let only root read them.
POWERCAP = Path("/sys/class/powercap")

TICK_SECONDS = 20.0


class Meter:
    """Energy in joules between `start` and `joules`, of the device that trains: a GPU's
    counter, or the share that a trial's cores are of the machine's in the counters of
    all CPU packages.

    A fraction of a GPU gets that share of its counter.

    Args:
        device: cpu or cuda.
        gpus: how many GPUs the trial has, or which share of one.
        cpus: how many cores it has.
    """

    def __init__(
        self, device: str, gpus: float, cpus: float, *, powercap: Path = POWERCAP
    ) -> None:
        self._gpus = max(1, round(gpus)) if device == "cuda" else 0
        if self._gpus:
            self._share = min(1.0, gpus)
        else:
            self._share = min(1.0, cpus / (os.cpu_count() or 1))
        self._packages = [] if self._gpus else _packages(powercap)
        self._ranges = [most for _, most in self._packages] or [0.0] * self._gpus
        self._last: list[float] | None = None
        self._drawn, self._read_at = 0.0, 0.0

    def start(self) -> None:
        """Begins to count."""
        self._drawn = 0.0
        self._last = self._read()
        self._read_at = time.monotonic()

    def tick(self) -> None:
        """To be called often: a counter of RAPL begins again at 0 after some minutes,
        and may not do so twice unseen.
        """
        if self._packages and time.monotonic() - self._read_at > TICK_SECONDS:
            self._advance()

    def joules(self) -> float | None:
        """Since `start`; None where nothing can be read."""
        self._advance()
        if self._last is None:
            return None
        return self._share * self._drawn

    def _advance(self) -> None:
        now, before = self._read(), self._last
        if not before or now is None:
            self._last = None
            return
        wrapped = sum(
            most
            for one, other, most in zip(before, now, self._ranges, strict=True)
            if other < one
        )
        self._drawn += sum(now) - sum(before) + wrapped
        self._last, self._read_at = now, time.monotonic()

    def _read(self) -> list[float] | None:
        try:
            if self._gpus:
                return _gpu_joules(self._gpus)
            return [_joules(file) for file, _ in self._packages]
        except Exception:
            # Drivers and files fail in many ways; energy is circumstance, and costs no
            # trial.
            return None


def _packages(powercap: Path) -> list[tuple[Path, float]]:
    """Counter and range in joules of whole packages: their cores and their memory are
    zones within, and `psys` is all of the machine once more.
    """
    zones = sorted(
        zone for zone in powercap.glob("intel-rapl:*") if zone.name.count(":") == 1
    )
    try:
        whole = [
            zone for zone in zones if (zone / "name").read_text().startswith("package")
        ]
        return [
            (zone / "energy_uj", _joules(zone / "max_energy_range_uj"))
            for zone in whole
        ]
    except (OSError, ValueError):
        return []


def _joules(file: Path) -> float:
    return float(file.read_text()) / 1e6


def _gpu_joules(count: int) -> list[float]:
    """Counters of the first `count` GPUs that this process sees, since their driver was
    loaded.

    Raises pynvml.NVMLError where a GPU has none, as before Volta.
    """
    import pynvml
    import torch

    pynvml.nvmlInit()
    uuids = [
        f"GPU-{torch.cuda.get_device_properties(number).uuid}"
        for number in range(count)
    ]
    return [
        pynvml.nvmlDeviceGetTotalEnergyConsumption(
            pynvml.nvmlDeviceGetHandleByUUID(uuid)
        )
        / 1e3
        for uuid in uuids
    ]
