"""The batches of an epoch.

They come from memory, augmented on the device, or from image files through timm's
loader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.data import arrays, sets
from ablate.data.share import WHOLE, Share
from ablate.records import Data, Recipe

Batch = tuple[Tensor, Tensor]


class Batches(Protocol):
    """What training needs from its data.

    A batch has images float32 (n, channels, side, side), normalised, and labels int64
    (n), both on the device. `order` draws the data order and every augmentation, so a
    resumed epoch needs no state but that of `order`. Each of several processes gets its
    share of the same batches. `whole` returns all test images to the caller,
    `validation` the held-out images instead.
    """

    updates: int

    def train(self, order: torch.Generator) -> Iterator[Batch]: ...

    def test(
        self, whole: bool = False, validation: bool = False
    ) -> Iterator[Batch]: ...


def batches(
    data: Data, recipe: Recipe, device: torch.device, share: Share = WHOLE
) -> Batches:
    """Returns the batches of a trial.

    Raises DataError if the data are missing, or if a batch cannot be shared evenly.
    """
    if sets.find(data.name).kind == "memory":
        return MemoryBatches(data, recipe, device, share)
    from ablate.data.images import ImageBatches

    return ImageBatches(data, recipe, device, share)


def first_images(source: Batches, count: int) -> Iterator[Tensor]:
    """Yields the first test images, in batches (n, channels, side, side)."""
    for images, _ in source.test(whole=True):
        yield images[:count]
        count -= len(images)
        if count <= 0:
            return


def normalisation(data: Data, images: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mean and standard deviation of values from 0 to 255.

    They are those of the data if given, otherwise those of the first training images.

    Shape:
        both float32 (1, channels, 1, 1).
    """
    if data.mean:
        both = (
            torch.tensor([data.mean, data.std], dtype=torch.float64).reshape(
                2, 1, -1, 1, 1
            )
            * 255
        )
        mean, std = both.expand(2, 1, data.channels, 1, 1).float()
        return mean, std
    # The first images are enough for an estimate. The bound on the deviation avoids a
    # division by zero for a constant channel.
    values = images[:10_000].double()
    return (
        values.mean((0, 2, 3), keepdim=True).float(),
        values.std((0, 2, 3), keepdim=True).clamp_min(1.0).float(),
    )


class MemoryBatches:
    """Batches of a data set that lies on the device as uint8.

    Training leaves out the last, smaller batch of an epoch.
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
        # Every process draws the whole epoch and takes its share: `order` is then in
        # the same state in all of them, whatever their number.
        permutation = arrays.repeated(len(self._train), self._recipe.repeats, order)
        for update in range(self.updates):
            chosen = permutation[update * self._batch : (update + 1) * self._batch][
                self._mine
            ].to(self._device)
            # Before normalising: padding with zeros is then black, as in the raw image.
            images = self._augment(self._train[chosen], order)
            images = self._normalise(images)
            yield (
                (self._erase(images) if self._erase else images),
                self._train_labels[chosen],
            )

    def test(self, whole: bool = False, validation: bool = False) -> Iterator[Batch]:
        share = slice(None) if whole else self._share.test()
        images, labels = self._validation if validation else self._test
        for start in range(0, len(images), 512):
            taken = images[start : start + 512][share]
            if len(taken):
                yield self._normalise(taken), labels[start : start + 512][share]

    def _normalise(self, images: Tensor) -> Tensor:
        normal = (images.float() - self._mean) / self._std
        if normal.shape[-1] == self._side:
            return normal
        return F.interpolate(
            normal, size=(self._side, self._side), mode="bilinear", antialias=True
        )

    def _augment(self, images: Tensor, order: torch.Generator) -> Tensor:
        """Applies random crops after zero padding, and horizontal flips.

        The draws are made on the CPU, so they are the same on every device. They are
        made for the whole batch, so they are the same in every process.
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
            # One gather for the whole batch instead of a crop per image: rows and
            # columns are indexed by image.
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
