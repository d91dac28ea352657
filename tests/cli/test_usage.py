"""How busy a machine is, as the dashboard shows it."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ablate.machine import usage


def test_this_machine() -> None:
    now = usage.usage()
    assert 0 <= now.busy <= 100
    assert now.cores >= 1
    assert 0 < now.used < now.memory


def test_a_process_and_one_that_has_ended() -> None:
    used = usage.process_usage(os.getpid())
    assert used is not None
    assert used[0] >= 0
    assert used[1] > 1e6
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as child:
        assert usage.process_usage(child.pid) is not None
        child.kill()
    assert usage.process_usage(child.pid) is None


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    class NVMLError(Exception):
        pass

    def rates(gpu: int) -> SimpleNamespace:
        if gpu == 1:
            raise NVMLError("not supported")
        return SimpleNamespace(gpu=75)

    fake = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(used=12, total=80),
        nvmlDeviceGetName=lambda gpu: "NVIDIA H100",
        nvmlDeviceGetUtilizationRates=rates,
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert usage.usage().gpus == (usage.GpuUsage("NVIDIA H100", 75, 12, 80),)

    def broken() -> None:
        raise NVMLError("no driver")

    fake.nvmlInit = broken
    assert usage.usage().gpus == ()
