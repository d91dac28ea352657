"""Measures how fast networks are on this machine, compared with a reference.

A machine is never quiet: clocks change, and other programs run. So a network and its
reference take turns, and each figure is a median over these rounds. The ratio of two
times that were taken one after the other is far steadier than either of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ablate.models import build
from ablate.records import Architecture
from ablate.training.probe import loss_of

# Rounds of one network go on until so many seconds have passed. Their number has
# limits.
MEASURE_SECONDS = 2.0
LEAST_ROUNDS, MOST_ROUNDS = 5, 100
# A step that takes so many seconds is long enough: more images would not change the
# ratio.
LONG_ENOUGH = 0.2
MOST_IMAGES = 256


@dataclass(frozen=True)
class Conditions:
    """What timings are measured with.

    Attributes:
        images: the most images of a step, such as a part of a recipe's batch.
        precision: float32, bfloat16 or float16; the last two with autocast.
        threads: threads of a trial on the CPU.
    """

    images: int = MOST_IMAGES
    precision: str = "float32"
    device: str = "cpu"
    threads: int = 1

    @property
    def text(self) -> str:
        """The conditions in words."""
        if self.device != "cpu":
            return f"{self.precision} on {torch.cuda.get_device_name()}"
        plural = "" if self.threads == 1 else "s"
        return f"{self.precision} on {self.threads} CPU thread{plural}"


@dataclass(frozen=True)
class Timing:
    """Medians over rounds.

    Attributes:
        latency_ms: inference of one image, in milliseconds.
        inference: images per second in inference.
        training: images per second in training steps.
        step_ratio: the time of a training step divided by that of the reference, with
            the same images.
    """

    latency_ms: float
    inference: float
    training: float
    step_ratio: float


class Stopwatch:
    """Times networks against one reference.

    Args:
        reference: the network that the others are compared with.

    Attributes:
        images: images of a step.

    Raises:
        torch.OutOfMemoryError: the GPU has too little memory for two images a step.
    """

    def __init__(self, reference: Architecture, conditions: Conditions) -> None:
        self._conditions = conditions
        with _as_in_a_trial(self._conditions):
            self._reference = _Timed(reference, conditions)
            self.images = self._long_enough()

    def measure(self, architecture: Architecture) -> Timing:
        """Times a network and the reference in turns.

        Raises Infeasible if the network cannot be built.
        """
        with _as_in_a_trial(self._conditions):
            timed = _Timed(architecture, self._conditions)
            timed.train(self.images)
            timed.infer(self.images)
            latencies: list[float] = []
            inferences: list[float] = []
            steps: list[float] = []
            ratios: list[float] = []
            began = time.monotonic()
            while len(steps) < LEAST_ROUNDS or (
                len(steps) < MOST_ROUNDS and time.monotonic() - began < MEASURE_SECONDS
            ):
                usual = self._reference.train(self.images)
                step = timed.train(self.images)
                steps.append(step)
                ratios.append(step / usual)
                latencies.append(timed.infer(1))
                inferences.append(timed.infer(self.images))
        return Timing(
            latency_ms=1000 * statistics.median(latencies),
            inference=self.images / statistics.median(inferences),
            training=self.images / statistics.median(steps),
            step_ratio=statistics.median(ratios),
        )

    def _long_enough(self) -> int:
        """Returns how many images a step needs."""
        images = min(2, self._conditions.images)
        self._reference.train(images)
        while images < self._conditions.images:
            # The first step of a size may load kernels.
            taken = min(self._reference.train(images) for _ in range(2))
            if taken >= LONG_ENOUGH:
                break
            larger = min(2 * images, self._conditions.images)
            try:
                self._reference.train(larger)
            except torch.OutOfMemoryError:
                break
            images = larger
        return images


@contextmanager
def _as_in_a_trial(conditions: Conditions) -> Iterator[None]:
    """Runs a block with the threads of a trial; random states do not change."""
    before = torch.get_num_threads()
    torch.set_num_threads(conditions.threads)
    devices = [] if conditions.device == "cpu" else [torch.cuda.current_device()]
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        torch.set_num_threads(before)


class _Timed:
    """A network that trains and infers on random images."""

    def __init__(self, architecture: Architecture, conditions: Conditions) -> None:
        self._architecture = architecture
        self._device = torch.device(conditions.device)
        self._dtype = getattr(torch, conditions.precision)
        self._model: nn.Module = build(architecture).to(self._device)
        self._optimizer = torch.optim.AdamW(self._model.parameters())
        self._scaler = torch.amp.GradScaler(
            self._device.type, enabled=self._dtype == torch.float16
        )
        self._inputs: dict[int, Tensor] = {}

    def train(self, images: int) -> float:
        """Returns the seconds of a step: forward, backward and AdamW."""
        self._model.train()
        inputs = self._images(images)

        def step() -> None:
            self._optimizer.zero_grad()
            with self._autocast():
                loss = loss_of(self._model, self._architecture, inputs)
            self._scaler.scale(loss).backward()
            self._scaler.step(self._optimizer)
            self._scaler.update()

        return self._seconds(step)

    def infer(self, images: int) -> float:
        """Returns the seconds of a forward pass in evaluation mode."""
        self._model.eval()
        inputs = self._images(images)
        with torch.inference_mode(), self._autocast():
            return self._seconds(lambda: self._model(inputs))

    def _images(self, number: int) -> Tensor:
        if number not in self._inputs:
            shape = (number, *self._architecture.input_shape)
            self._inputs[number] = torch.randn(shape, device=self._device)
        return self._inputs[number]

    def _autocast(self) -> AbstractContextManager[object]:
        if self._dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._dtype)

    def _seconds(self, work: Callable[[], object]) -> float:
        self._wait()
        start = time.perf_counter()
        work()
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        """Waits for a GPU, which works while Python goes on."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()
