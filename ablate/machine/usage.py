"""How busy this machine is: processors, memory, GPUs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cache

import psutil


@dataclass(frozen=True)
class GpuUsage:
    """One GPU: how busy it is, in percent, and its memory in bytes."""

    name: str
    busy: float
    used: int
    memory: int


@dataclass(frozen=True)
class Usage:
    """A machine: how busy its processors are, in percent, and its memory in bytes."""

    busy: float
    cores: int
    used: int
    memory: int
    gpus: tuple[GpuUsage, ...]


def usage() -> Usage:
    """Returns how busy this machine has been since the last call."""
    memory = psutil.virtual_memory()
    return Usage(
        busy=psutil.cpu_percent(),
        cores=psutil.cpu_count() or 1,
        used=memory.total - memory.available,
        memory=memory.total,
        gpus=_gpus(),
    )


def _gpus() -> tuple[GpuUsage, ...]:
    """Returns the NVIDIA GPUs; none without a driver or the package nvidia-ml-py."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        # There is no driver.
        return ()
    gpus = []
    for number in range(count):
        # A part of a GPU (MIG) does not say how busy it is.
        with contextlib.suppress(pynvml.NVMLError):
            gpu = pynvml.nvmlDeviceGetHandleByIndex(number)
            memory = pynvml.nvmlDeviceGetMemoryInfo(gpu)
            gpus.append(
                GpuUsage(
                    name=pynvml.nvmlDeviceGetName(gpu),
                    busy=pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
                    used=memory.used,
                    memory=memory.total,
                )
            )
    return tuple(gpus)


@cache
def _process(number: int) -> psutil.Process:
    # Kept: the load of a process is measured since the last question.
    return psutil.Process(number)


def process_usage(number: int) -> tuple[float, int] | None:
    """Returns how busy a process of this machine is, in percent of one core, and its
    memory in bytes; None if it has ended.
    """
    try:
        process = _process(number)
        if not process.is_running():
            _process.cache_clear()
            return None
        return process.cpu_percent(), process.memory_info().rss
    except psutil.Error:
        return None
