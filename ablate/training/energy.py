"""What training draws from the socket, where the hardware counts it: NVIDIA's GPUs (NVML) and the CPU's packages (RAPL)."""

from __future__ import annotations

import os
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
"""Linux shows RAPL's counters here, of Intel's and AMD's packages alike; many systems let only root read them."""


class Meter:
    """Energy in joules between `start` and `joules`, of the device that trains: a GPU's counter, or the share that a trial's
    cores are of the machine's in the counters of all CPU packages. A fraction of a GPU gets that share of its counter.

    Args:
        device: cpu or cuda.
        gpus: how many GPUs the trial has, or which share of one.
        cpus: how many cores it has.
    """

    def __init__(self, device: str, gpus: float, cpus: float, *, powercap: Path = POWERCAP) -> None:
        self._gpus = max(1, round(gpus)) if device == "cuda" else 0
        self._share = min(1.0, gpus) if self._gpus else min(1.0, cpus / (os.cpu_count() or 1))
        self._packages = [] if self._gpus else _packages(powercap)
        self._begun: list[float] | None = None

    def start(self) -> None:
        """Reads the counters."""
        self._begun = self._read()

    def joules(self) -> float | None:
        """Since `start`; None where nothing can be read."""
        begun, now = self._begun, self._read()
        if not begun or now is None:
            return None
        # A counter of RAPL begins again at 0, once in some minutes to hours.
        ranges = [_number(package / "max_energy_range_uj") / 1e6 for package in self._packages] or [0.0] * len(now)
        wrapped = sum(span for before, after, span in zip(begun, now, ranges, strict=True) if after < before)
        return self._share * (sum(now) - sum(begun) + wrapped)

    def _read(self) -> list[float] | None:
        try:
            return _gpu_joules(self._gpus) if self._gpus else [_number(package / "energy_uj") / 1e6 for package in self._packages]
        except OSError:
            return None


def _packages(powercap: Path) -> list[Path]:
    """The zones of whole packages: their cores and their memory are zones within, and `psys` is all of the machine once more."""
    zones = sorted(zone for zone in powercap.glob("intel-rapl:*") if zone.name.count(":") == 1)
    return [zone for zone in zones if (zone / "name").read_text().startswith("package")]


def _number(file: Path) -> float:
    return float(file.read_text())


def _gpu_joules(count: int) -> list[float] | None:
    """Counters of the first `count` GPUs that this process sees, since their driver was loaded; None where there is none, as
    before Volta."""
    import pynvml
    import torch

    try:
        pynvml.nvmlInit()
        handles = [
            pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(number).uuid}") for number in range(count)
        ]
        return [pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3 for handle in handles]
    except pynvml.NVMLError:
        return None
