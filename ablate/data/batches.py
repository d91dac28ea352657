"""The batches of an epoch: from memory, augmented on the device, or from image files
through timm's loader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.data import arrays, catalogue
from ablate.errors import DataError
from ablate.records import Data, Recipe

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Share:
    """Which part of every batch one of several processes takes; all of it, where there
    is one process.
    """

    rank: int = 0
    of: int = 1

    def training(self, batch: int, mixes: bool) -> slice | list[int]:
        """Positions in a training batch, as many in each process.

        Where two images are mixed, it is the first with the last and so on: both go to
        one process, which can then mix its share as the whole batch would be.

        Raises:
            DataError: the batch cannot be shared evenly.
        """
        if self.of == 1:
            return slice(None)
        parts = self.of * (2 if mixes else 1)
        if batch % parts:
            raise DataError(
                f"recipe: a batch of {batch} images cannot be shared by {self.of}"
                f" processes{' that mix pairs' if mixes else ''}; set recipe.batch_size"
                f" to a multiple of {parts}"
            )
        if not mixes:
            return slice(self.rank, None, self.of)
        first = list(range(self.rank, batch // 2, self.of))
        return first + [batch - 1 - position for position in reversed(first)]

    def test(self) -> slice:
        """Positions in a batch of test images, which may be none."""
        return slice(self.rank, None, self.of)


WHOLE = Share()


class Batches(Protocol):
    """What training needs of its data.

    A batch is images float32 (n, channels, side, side), normalised, and labels int64
    (n), both on the device. `order` draws the data order and every augmentation, so
    that its state is all that a resumed epoch needs. Of several processes each gets its
    share of the same batches; `whole` gives all test images to whoever asks,
    `validation` those that were held out instead.
    """

    updates: int

    def train(self, order: torch.Generator) -> Iterator[Batch]: ...

    def test(
        self, whole: bool = False, validation: bool = False
    ) -> Iterator[Batch]: ...


def batches(
    data: Data, recipe: Recipe, device: torch.device, share: Share = WHOLE
) -> Batches:
    """The batches of a trial.

    Raises DataError where the data are missing, or a batch cannot be shared evenly.
    """
    if catalogue.find(data.name).kind == "memory":
        return MemoryBatches(data, recipe, device, share)
    from ablate.data.images import ImageBatches

    return ImageBatches(data, recipe, device, share)


def first_images(found: Batches, count: int) -> Iterator[Tensor]:
    """The first test images, in batches (n, channels, side, side)."""
    for images, _ in found.test(whole=True):
        yield images[:count]
        count -= len(images)
        if count <= 0:
            return


def normalisation(data: Data, images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of values from 0 to 255: those that the data say,
    else those of the first training images.

    Shape:
        both float32 (1, channels, 1, 1).
    """
    if data.mean:
        said = (
            torch.tensor([data.mean, data.std], dtype=torch.float64).reshape(
                2, 1, -1, 1, 1
            )
            * 255
        )
        mean, std = said.expand(2, 1, data.channels, 1, 1).float()
        return mean, std
    values = images[:10_000].double()
    return (
        values.mean((0, 2, 3), keepdim=True).float(),
        values.std((0, 2, 3), keepdim=True).clamp_min(1.0).float(),
    )


class MemoryBatches:
    """Batches of a data set that lies on the device as uint8.

    The last, smaller batch of an epoch is left out of training.
    """

    def __init__(
        self, data: Data, recipe: Recipe, device: torch.device, share: Share
    ) -> None:
        loaded = arrays.load(data)
        self._train = loaded.train.to(device)
        self._train_labels = loaded.train_labels.to(device)
        self._test = loaded.test.to(device), loaded.test_labels.to(device)
        self._validation = (
            loaded.validation.to(device),
            loaded.validation_labels.to(device),
        )
        mean, std = normalisation(data, loaded.train)
        self._mean = mean.to(device)
        self._std = std.to(device)
        self._recipe = recipe
        self._side = data.image_size
        self._device = device
        self._batch = min(recipe.batch_size, len(self._train))
        self.updates = len(self._train) // self._batch
        self._share = share
        self._mine = share.training(self._batch, recipe.mixes)
        self._erase: Any = None
        if recipe.random_erasing:
            from timm.data.random_erasing import RandomErasing

            self._erase = RandomErasing(
                recipe.random_erasing, mode="pixel", device=str(device)
            )

    def train(self, order: torch.Generator) -> Iterator[Batch]:
        permutation = arrays.repeated(len(self._train), self._recipe.repeats, order)
        for update in range(self.updates):
            chosen = permutation[update * self._batch : (update + 1) * self._batch][
                self._mine
            ].to(self._device)
            images = self._augment(self._train[chosen], order)
            images = self._normalise(images)
            yield (
                (self._erase(images) if self._erase else images),
                self._train_labels[chosen],
            )

    def test(self, whole: bool = False, validation: bool = False) -> Iterator[Batch]:
        mine = slice(None) if whole else self._share.test()
        images, labels = self._validation if validation else self._test
        for start in range(0, len(images), 512):
            taken = images[start : start + 512][mine]
            if len(taken):
                yield self._normalise(taken), labels[start : start + 512][mine]

    def _normalise(self, images: Tensor) -> Tensor:
        normal = (images.float() - self._mean) / self._std
        if normal.shape[-1] == self._side:
            return normal
        return F.interpolate(
            normal, size=(self._side, self._side), mode="bilinear", antialias=True
        )

    def _augment(self, images: Tensor, order: torch.Generator) -> Tensor:
        """Random crops after zero padding, and horizontal flips: drawn on the CPU, the
        same on every device, and for the whole batch, the same in every process.
        """
        padding = self._recipe.crop_padding
        count = len(images)
        side = images.shape[-1]
        if padding:
            offsets = torch.randint(
                0, 2 * padding + 1, (2, self._batch, 1), generator=order
            )[:, self._mine].to(images.device)
            steps = torch.arange(side, device=images.device)
            rows = offsets[0] + steps
            columns = offsets[1] + steps
            padded = F.pad(images, (padding,) * 4)
            picked = torch.arange(count, device=images.device)[:, None, None]
            images = padded.permute(0, 2, 3, 1)[
                picked, rows[:, :, None], columns[:, None, :]
            ].permute(0, 3, 1, 2)
        if self._recipe.flip:
            flips = (
                torch.rand(self._batch, generator=order)[self._mine]
                .lt(self._recipe.flip)
                .to(images.device)
            )
            images = torch.where(flips[:, None, None, None], images.flip(-1), images)
        return images
