"""Energy: counters of packages and GPUs, as Linux and NVML show them; made-up ones,
since few machines let a test read them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from ablate.training.energy import EnergyMeter


def zone(folder: Path, name: str, joules: float, *, most: float = 1000.0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{joules * 1e6:.0f}\n")
    (folder / "max_energy_range_uj").write_text(f"{most * 1e6:.0f}\n")


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packages, the cores of one of them, and the whole machine."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    zone(tmp_path / "intel-rapl:0", "package-0", 100.0)
    zone(tmp_path / "intel-rapl:1", "package-1", 990.0)
    zone(tmp_path / "intel-rapl:0:0", "core", 50.0)
    zone(tmp_path / "intel-rapl:2", "psys", 300.0)
    zone(tmp_path / "intel-rapl-mmio:0", "package-0", 100.0)
    return tmp_path


def test_cores_have_their_share_of_all_packages(powercap: Path) -> None:
    meter = EnergyMeter("cpu", 0, 2, powercap=powercap)
    meter.start()
    zone(powercap / "intel-rapl:0", "package-0", 140.0)
    zone(powercap / "intel-rapl:0:0", "core", 80.0)
    zone(powercap / "intel-rapl:1", "package-1", 10.0)  # it began again at 0
    zone(powercap / "intel-rapl:2", "psys", 400.0)
    zone(powercap / "intel-rapl-mmio:0", "package-0", 140.0)
    assert meter.joules() == pytest.approx((40 + 20) * 2 / 8)


def test_a_counter_that_begins_again_within_an_epoch_is_seen(
    powercap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.training.energy.TICK_SECONDS", 0.0)
    meter = EnergyMeter("cpu", 0, 8, powercap=powercap)
    meter.start()
    for joules in (900.0, 500.0, 100.0, 800.0):
        zone(powercap / "intel-rapl:0", "package-0", joules)
        meter.tick()
    assert meter.joules() == pytest.approx(800 + 600 + 600 + 700)


def test_counters_that_cannot_be_read_are_no_energy(
    powercap: Path, tmp_path: Path
) -> None:
    meter = EnergyMeter("cpu", 0, 1, powercap=powercap)
    assert meter.joules() is None  # never started
    meter.start()
    (powercap / "intel-rapl:1" / "energy_uj").unlink()
    assert meter.joules() is None
    meter.start()
    assert meter.joules() is None
    meter = EnergyMeter("cpu", 0, 1, powercap=tmp_path / "none")
    meter.start()
    assert meter.joules() is None


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Counters in millijoules by UUID, in place of NVIDIA's library."""
    counters = {"GPU-a": 5_000, "GPU-b": 70_000}
    fake = ModuleType("pynvml")
    fake.NVMLError = type("NVMLError", (Exception,), {})

    def total(handle: str) -> int:
        if counters[handle] < 0:
            raise fake.NVMLError
        return counters[handle]

    fake.nvmlInit = lambda: None
    fake.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    fake.nvmlDeviceGetTotalEnergyConsumption = total
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda number: SimpleNamespace(uuid="ab"[number]),
    )
    return counters


@pytest.mark.parametrize(("gpus", "joules"), [(1, 10.0), (0.25, 2.5), (2, 13.0)])
def test_gpus_tell_their_own(
    gpus: float, joules: float, nvml: dict[str, int], powercap: Path
) -> None:
    meter = EnergyMeter("cuda", gpus, 2, powercap=powercap)
    meter.start()
    nvml["GPU-a"] += 10_000
    nvml["GPU-b"] += 3_000
    assert meter.joules() == pytest.approx(joules)


def test_a_gpu_without_a_counter_is_no_energy(nvml: dict[str, int]) -> None:
    nvml["GPU-a"] = -1
    meter = EnergyMeter("cuda", 1, 2)
    meter.start()
    assert meter.joules() is None


def test_no_library_is_no_energy(
    monkeypatch: pytest.MonkeyPatch, powercap: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    meter = EnergyMeter("cuda", 1, 2)
    meter.start()
    assert meter.joules() is None
    (powercap / "intel-rapl:1" / "max_energy_range_uj").write_text("many\n")
    meter = EnergyMeter("cpu", 0, 2, powercap=powercap)
    meter.start()
    assert meter.joules() is None
