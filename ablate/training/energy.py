"""Measures the energy of training where the hardware counts it.

NVIDIA's GPUs count it (NVML), and so do CPU packages (RAPL).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

# Linux exposes RAPL's counters here, for packages of Intel and AMD. On many systems
# only root can read them.
POWERCAP = Path("/sys/class/powercap")

TICK_SECONDS = 20.0


class EnergyMeter:
    """Energy in joules between `start` and `joules`, of the device that trains.

    For a GPU, this is its counter, times the trial's share of the GPU. For a CPU, it is
    the sum of the counters of all packages, times the trial's share of the machine's
    cores.

    Args:
        device: cpu or cuda.
        gpus: the number of GPUs of the trial, or its share of one.
        cpus: the number of its cores.
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
        """Starts counting."""
        self._drawn = 0.0
        self._last = self._read()
        self._read_at = time.monotonic()

    def tick(self) -> None:
        """Reads the counters; call it often.

        A RAPL counter wraps around to 0 after some minutes. Two wraps between two reads
        would go unnoticed.
        """
        if self._packages and time.monotonic() - self._read_at > TICK_SECONDS:
            self._advance()

    def joules(self) -> float | None:
        """Returns the energy since `start`; None if nothing can be read."""
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
            for start, other, most in zip(before, now, self._ranges, strict=True)
            if other < start
        )
        self._drawn += sum(now) - sum(before) + wrapped
        self._last, self._read_at = now, time.monotonic()

    def _read(self) -> list[float] | None:
        try:
            if self._gpus:
                return _gpu_joules(self._gpus)
            return [_joules(file) for file, _ in self._packages]
        except Exception:
            # Drivers and files fail in many ways. Energy is extra information and must
            # not end a trial.
            return None


def _packages(powercap: Path) -> list[tuple[Path, float]]:
    """Returns the counter and the range, in joules, of each CPU package.

    Cores and memory are zones within a package, and `psys` counts the whole machine
    again, so both are left out.
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
    """Returns the counters of the first `count` GPUs that this process sees.

    They count from the load of the driver. Raises pynvml.NVMLError if a GPU has no
    counter, as before Volta.
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
