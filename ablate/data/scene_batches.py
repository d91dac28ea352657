"""Batches of scenes: resized, flipped, cropped, padded, with what they show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ablate.data.ade20k import ADEScenes
from ablate.data.arrays import drawn, parted, repeated
from ablate.data.batches import normalisation
from ablate.data.coco import CocoScenes
from ablate.data.digit_scenes import DigitScenes
from ablate.data.files import with_plain_errors
from ablate.data.scene import IGNORED, LEAST, Scene, Scenes
from ablate.data.sets import IMAGENET_MEAN, IMAGENET_STD, find
from ablate.errors import DataError
from ablate.machine.cpus import usable_cpus
from ablate.records import Data, Recipe

# Heights and widths of batches are multiples of this, the coarsest stride of a map.
STRIDE = 32
# By how much training on image files changes the size of an image for segmentation:
# between half and twice.
RESIZED = (0.5, 2.0)
# Images from which the normalisation of generated scenes is estimated.
SAMPLE = 200

# What training learns from: boxes, boxes with masks, or the classes of pixels.
Shows = Literal["boxes", "masks", "classes"]


@dataclass(frozen=True)
class Drawn:
    """What is drawn for one training image. The numbers are from 0 to 1."""

    index: int
    flip: bool
    size: float
    top: float
    left: float


@dataclass(frozen=True)
class SceneBatch:
    """Several scenes of one size.

    Attributes:
        images: float32 (n, channels, height, width), normalised, padded with zeros.
        sizes: height and width of each image without its padding.
        objects: what each image shows, in its pixels.
        classes: uint8 (n, height, width), padded with `IGNORED`.
        originals: height and width of each image before it was resized.
        scenes: the images before they were resized.
    """

    images: Tensor
    sizes: list[tuple[int, int]]
    objects: list[dict[str, Tensor]]
    classes: Tensor
    originals: list[tuple[int, int]]
    scenes: list[Scene]


def scenes(data: Data, split: str, shows: Shows) -> Scenes:
    """Returns all scenes of a split, `train` or `test`. Raises DataError."""
    if data.name == "coco":
        return CocoScenes(data.path, split, masks=shows == "masks")
    if data.name == "ade20k":
        return ADEScenes(data.path, split)
    return DigitScenes(split, data.image_size)


class SceneBatches:
    """The batches of a trial.

    Training draws everything from `order`, in the driving process, so that an epoch is
    the same with any number of loading processes.
    """

    def __init__(
        self, data: Data, recipe: Recipe, device: torch.device, shows: Shows
    ) -> None:
        self._data = data
        self._recipe = recipe
        self._device = device
        self._shows = shows
        self._is_file = find(data.name).kind == "scenes" and data.name != "digit-scenes"
        train = scenes(data, "train", shows)
        test = scenes(data, "test", shows)
        kept, held = parted(
            _subset(len(train), data, "train"), data.validation, data.split
        )
        self._train = _Part(train, kept.tolist())
        self._splits = {
            "validation": _Part(train, held.tolist()),
            "test": _Part(test, _subset(len(test), data, "test").tolist()),
        }
        if not len(self._train):
            raise DataError(f"data: {data.name} has no training image with objects")
        self._batch = min(recipe.batch_size, len(self._train))
        self.updates = len(self._train) // self._batch
        self._mean, self._std = self._normalisation()

    def train(self, order: torch.Generator) -> Iterator[SceneBatch]:
        """Yields the batches of an epoch, without a last, smaller one."""
        permutation = repeated(len(self._train), self._recipe.repeats, order).tolist()
        numbers = torch.rand(len(permutation), 4, generator=order).tolist()
        chosen = []
        for index, (flip, size, top, left) in zip(permutation, numbers, strict=True):
            chosen.append(Drawn(index, flip < self._recipe.flip, size, top, left))
        prepared = _Prepared(self._train, self._prepare, chosen)
        whole = self.updates * self._batch
        yield from self._loaded(prepared, range(whole))

    def test(self, *, validation: bool = False) -> Iterator[SceneBatch]:
        """Yields the test images in order, or the held-out images."""
        split = self._splits["validation" if validation else "test"]
        chosen = [Drawn(index, False, 0.0, 0.0, 0.0) for index in range(len(split))]
        prepared = _Prepared(split, self._prepare_for_test, chosen)
        yield from self._loaded(prepared, range(len(split)))

    def _loaded(
        self, prepared: _Prepared, indices: Sequence[int]
    ) -> Iterator[SceneBatch]:
        # More processes than cores would only make torch warn.
        workers = min(self._data.workers, usable_cpus()) if self._is_file else 0
        loader: DataLoader[Any] = DataLoader(
            prepared,
            batch_size=self._batch,
            sampler=indices,
            num_workers=workers,
            collate_fn=list,
            # Each pass draws a seed for the loading processes, which draw nothing. It
            # must not come from the state that training draws from.
            generator=torch.Generator(),
        )
        for items in with_plain_errors(loader):
            yield self._batched(items)

    def _normalisation(self) -> tuple[Tensor, Tensor]:
        if self._is_file and not self._data.mean:
            mean, std = torch.tensor([IMAGENET_MEAN, IMAGENET_STD]) * 255
            return mean[:, None, None], std[:, None, None]
        sample = torch.zeros(0)
        if not self._data.mean:
            count = min(SAMPLE, len(self._train))
            sample = torch.stack([self._train[index].image for index in range(count)])
        statistics = normalisation(self._data, sample)
        mean, std = (values[0] for values in statistics)
        return mean, std

    def _prepare(self, scene: Scene, drawn: Drawn) -> tuple[Scene, Scene]:
        """Returns a training scene as it is read, and as the network sees it."""
        if self._shows == "classes" and self._data.image_width:
            low, high = RESIZED
            factor = self._fitting(scene) * (low + (high - low) * drawn.size)
            seen = _cropped(_resized(scene, factor), self._data.image_size, drawn)
        else:
            seen = self._fitted(scene)
        if drawn.flip:
            seen = _flipped(seen)
        return scene, _visible(seen)

    def _prepare_for_test(self, scene: Scene, drawn: Drawn) -> tuple[Scene, Scene]:
        return scene, self._fitted(scene)

    def _fitting(self, scene: Scene) -> float:
        """Returns the factor by which an image is resized to the size of the data."""
        height, width = scene.image.shape[-2:]
        short = self._data.image_size
        long = self._data.image_width or short
        return min(short / min(height, width), long / max(height, width))

    def _fitted(self, scene: Scene) -> Scene:
        return _resized(scene, self._fitting(scene))

    def _batched(self, items: list[tuple[Scene, Scene]]) -> SceneBatch:
        height = max(seen.image.shape[-2] for _, seen in items)
        width = max(seen.image.shape[-1] for _, seen in items)
        height += -height % STRIDE
        width += -width % STRIDE
        images = []
        classes = []
        objects = []
        for _, seen in items:
            below = height - seen.image.shape[-2]
            beside = width - seen.image.shape[-1]
            normal = (seen.image.float() - self._mean) / self._std
            images.append(F.pad(normal, (0, beside, 0, below)))
            classes.append(F.pad(seen.classes, (0, beside, 0, below), value=IGNORED))
            moved = {
                name: value.to(self._device) for name, value in seen.objects.items()
            }
            if "masks" in moved:
                moved["masks"] = F.pad(moved["masks"], (0, beside, 0, below))
            objects.append(moved)
        return SceneBatch(
            images=torch.stack(images).to(self._device),
            sizes=[_size(seen) for _, seen in items],
            objects=objects,
            classes=torch.stack(classes).to(self._device),
            originals=[_size(scene) for scene, _ in items],
            scenes=[scene for scene, _ in items],
        )


class _Part:
    """Some scenes of a split."""

    def __init__(self, all_scenes: Scenes, indices: list[int]) -> None:
        self._scenes = all_scenes
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Scene:
        return self._scenes[self._indices[index]]


class _Prepared(Dataset[tuple[Scene, Scene]]):
    """Scenes with what was drawn for them, for a loading process."""

    def __init__(self, part: _Part, prepare: Any, chosen: list[Drawn]) -> None:
        self._part = part
        self._prepare = prepare
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index: int) -> tuple[Scene, Scene]:
        chosen = self._chosen[index]
        prepared: tuple[Scene, Scene] = self._prepare(self._part[chosen.index], chosen)
        return prepared


def _subset(available: int, data: Data, split: str) -> Tensor:
    number = data.train_images if split == "train" else data.test_images
    if number and number > available:
        raise DataError(
            f"data: {split}_images = {number}, but the data set has {available}"
        )
    return drawn(available, number, data.split if split == "train" else 0)


def _size(scene: Scene) -> tuple[int, int]:
    height, width = scene.image.shape[-2:]
    return height, width


def _resized(scene: Scene, factor: float) -> Scene:
    """Resizes a scene, its boxes and its masks by a factor."""
    height, width = _size(scene)
    size = (max(1, round(height * factor)), max(1, round(width * factor)))
    if size == (height, width):
        return scene
    image = F.interpolate(
        scene.image[None].float(), size=size, mode="bilinear", antialias=True
    )
    objects = dict(scene.objects)
    if objects:
        ratio = torch.tensor([size[1] / width, size[0] / height]).repeat(2)
        objects["boxes"] = objects["boxes"] * ratio
        objects["masks"] = _nearest(objects["masks"], size)
    return Scene(
        image=image[0].round().clamp(0, 255).to(torch.uint8),
        objects=objects,
        classes=_nearest(scene.classes[None], size)[0],
        annotations=scene.annotations,
    )


def _nearest(values: Tensor, size: tuple[int, int]) -> Tensor:
    """Resizes uint8 (n, height, width) to the nearest pixel."""
    if not len(values):
        return values.new_zeros(0, *size)
    return F.interpolate(values[None], size=size, mode="nearest-exact")[0]


def _visible(scene: Scene) -> Scene:
    """Leaves out objects that resizing has made smaller than a pixel."""
    if not scene.objects:
        return scene
    boxes = scene.objects["boxes"]
    large = ((boxes[:, 2:] - boxes[:, :2]) >= LEAST).all(1)
    kept = {name: values[large] for name, values in scene.objects.items()}
    return replace(scene, objects=kept)


def _flipped(scene: Scene) -> Scene:
    """Mirrors a scene from left to right."""
    objects = dict(scene.objects)
    if objects:
        width = scene.image.shape[-1]
        left, top, right, bottom = objects["boxes"].unbind(1)
        objects["boxes"] = torch.stack((width - right, top, width - left, bottom), 1)
        objects["masks"] = objects["masks"].flip(-1)
    return Scene(
        image=scene.image.flip(-1),
        objects=objects,
        classes=scene.classes.flip(-1),
        annotations=scene.annotations,
    )


def _cropped(scene: Scene, side: int, drawn: Drawn) -> Scene:
    """Cuts a square out of a scene for segmentation, padding it if it is smaller."""
    height, width = _size(scene)
    beside = max(0, side - width)
    below = max(0, side - height)
    image = F.pad(scene.image, (0, beside, 0, below))
    classes = F.pad(scene.classes, (0, beside, 0, below), value=IGNORED)
    top = round(drawn.top * (image.shape[-2] - side))
    left = round(drawn.left * (image.shape[-1] - side))
    region = (..., slice(top, top + side), slice(left, left + side))
    return Scene(image=image[region], objects={}, classes=classes[region])
