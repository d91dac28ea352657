"""Image files through timm's loader: folders, and torchvision's data sets of files."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from ablate.data.arrays import drawn, parted, repeated
from ablate.data.files import FolderImages, with_plain_errors
from ablate.data.fitting import spread
from ablate.data.index import SECOND_READING, Index, read_index
from ablate.data.published_sets import PUBLISHED, open_published
from ablate.data.sets import CROP, IMAGENET_MEAN, IMAGENET_STD
from ablate.data.share import Share
from ablate.errors import DataError
from ablate.records import Data, Recipe


def dataset(data: Data, split: str) -> Any:
    """Returns the images of one split, `train` or `test`.

    Raises DataError if they are missing.
    """
    if data.name in ("imagenet", "folder"):
        index = _index_of(data.name, data.path, data.fingerprint)
        return FolderImages(index, split, stored=data.name == "imagenet")
    if data.name == "huggingface":
        from ablate.data.huggingface import fingerprint, open_set

        opened = open_set(data.path, data.test_split)
        if data.fingerprint != fingerprint(opened):
            raise DataError(
                f"data: {data.path} has not the images that this trial was planned with;"
                " run the space again"
            )
        rows = opened.train if split == "train" else opened.test
        numbers = () if split == "train" else opened.numbers
        return Pictures(
            rows.select_columns([opened.image, opened.label]),
            partial(_values, numbers=numbers),
        )
    pictures = open_published(data.name, data.path, split)
    if PUBLISHED[data.name].has_split:
        return Pictures(pictures)
    labels = getattr(pictures, PUBLISHED[data.name].labels)
    return Pictures(pictures, indices=_stratified(list(labels), split))


def _values(row: dict[str, Any], numbers: Sequence[int]) -> tuple[Any, int]:
    """The image and the class of a row of two columns.

    Args:
        numbers: the class for each number; empty: the number itself.
    """
    image, label = row.values()
    return image, numbers[label] if numbers else label


@lru_cache(maxsize=2)
def _index_of(name: str, path: str, fingerprint: str) -> Index:
    """Returns the index of a folder.

    Raises:
        DataError: it cannot be read, or its files are not those of the fingerprint.
    """
    if not Path(path, "train").is_dir():
        raise DataError(
            f"data: no folder {path}/train; {name} needs {path}/train and {path}/val"
            " with one folder a class"
        )
    index = read_index(Path(path))
    planned = fingerprint.removesuffix(SECOND_READING)
    if planned and planned != index.fingerprint():
        raise DataError(
            f"data: the files below {path} are not those that this trial was planned"
            " with; run the space again"
        )
    return index


# The share of a data set without a split of its own that is its test set.
TEST_SHARE = 0.2


class Pictures(Dataset[Any]):
    """Pictures in RGB with their classes.

    Args:
        rows: a sequence of pictures of Pillow and classes.
        read: returns the picture and the class of a row.
        indices: the rows that count; None: all.

    Attributes:
        transform: what timm's loader applies to each picture.
    """

    transform: Any = None

    def __init__(
        self,
        rows: Any,
        read: Callable[[Any], tuple[Any, int]] = tuple,
        indices: list[int] | None = None,
    ) -> None:
        self._rows = rows
        self._read = read
        self.indices = indices

    def __len__(self) -> int:
        return len(self._rows if self.indices is None else self.indices)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if self.indices is not None:
            index = self.indices[index]
        picture, label = self._read(self._rows[index])
        picture = picture.convert("RGB")
        if self.transform is not None:
            picture = self.transform(picture)
        return picture, int(label)


def _stratified(labels: list[int], split: str) -> list[int]:
    """The indices of a split: a fifth of each class, always the same, is the test set."""
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(
        range(len(labels)), test_size=TEST_SHARE, random_state=0, stratify=labels
    )
    return sorted(train if split == "train" else test)


class Drawn(Dataset[Any]):
    """Some images of a data set.

    timm's loader sets `transform`, which is passed on to the data set itself.
    """

    def __init__(self, images: Any, indices: list[int]) -> None:
        self._images, self._indices = images, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Any:
        return self._images[self._indices[index]]

    def __setattr__(self, name: str, value: object) -> None:
        if name == "transform":
            self._images.transform = value
        else:
            super().__setattr__(name, value)


def training_transform(data: Data, recipe: Recipe, *, prefetch: bool = False) -> Any:
    """Returns the transform of training images, from timm's `create_transform`.

    Args:
        prefetch: leave normalisation and random erasing to timm's loader, which does
            them on the device.
    """
    from timm.data import create_transform
    from torchvision.transforms import RandomCrop

    changed = (recipe.crop_scale, recipe.crop_ratio) != (
        Recipe().crop_scale,
        Recipe().crop_ratio,
    )
    mean, std = normalisation(data)
    transform = create_transform(
        data.image_size,
        is_training=True,
        # The defaults are left to timm, because its 3/4 is not exactly 1 / (4/3).
        scale=(recipe.crop_scale, 1.0) if changed else None,
        ratio=(1 / recipe.crop_ratio, recipe.crop_ratio) if changed else None,
        hflip=recipe.flip,
        color_jitter=recipe.color_jitter,
        auto_augment="3a" if recipe.three_augment else recipe.rand_augment or None,
        interpolation=recipe.interpolation,
        mean=mean,
        std=std,
        re_prob=recipe.random_erasing,
        re_mode="pixel",
        use_prefetcher=prefetch,
    )
    if recipe.crop_padding:
        # DeiT does the same for small images.
        transform.transforms[0] = RandomCrop(
            data.image_size, padding=recipe.crop_padding
        )
    return transform


def evaluation_transform(data: Data, recipe: Recipe, *, prefetch: bool = False) -> Any:
    """Returns the transform of test images.

    They are resized and cropped at the centre, or taken as they are if training does
    so.
    """
    from timm.data import create_transform

    mean, std = normalisation(data)
    transform = create_transform(
        data.image_size,
        interpolation=data.interpolation or recipe.test_interpolation,
        crop_pct=data.crop or CROP,
        crop_mode=data.crop_mode or None,
        mean=mean,
        std=std,
        use_prefetcher=prefetch,
    )
    if recipe.crop_padding:
        del transform.transforms[:2]
    return transform


def normalisation(data: Data) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns mean and standard deviation of each channel, for values from 0 to 1."""
    return (
        spread(data.mean, data.channels) or IMAGENET_MEAN,
        spread(data.std, data.channels) or IMAGENET_STD,
    )


class RepeatedSampler(Sampler[int]):
    """Repeats each image of a random subset `repeats` times in a row.

    This is repeated augmentation. An epoch is as long as one without repeats. The
    copies of an image are in one batch, as with DeiT's sampler.
    """

    def __init__(self, images: int, repeats: int) -> None:
        self._images = images
        self._repeats = repeats
        self._chosen: list[int] = []

    def draw(self, order: torch.Generator) -> None:
        """Draws the images of an epoch."""
        self._chosen = repeated(self._images, self._repeats, order).tolist()

    def __len__(self) -> int:
        return self._images

    def __iter__(self) -> Iterator[int]:
        return iter(self._chosen)


def _worker_seed(rank: int, info: Any) -> int:
    """Returns the seed of a loading process of the process `rank`.

    It differs from that of the same loading process of another rank.
    """
    return int(info.seed) + 1000 * rank


def _split(data: Data, split: str) -> Any:
    """Returns the images of train, validation or test that the data ask for."""
    count = data.test_images if split == "test" else data.train_images
    images = dataset(data, "test" if split == "test" else "train")
    if count and count > len(images):
        raise DataError(
            f"data: {'test' if split == 'test' else 'train'}_images = {count}, but the"
            f" data set has {len(images)}"
        )
    if not count and not data.validation:
        return images
    if split == "test":
        return Drawn(images, drawn(len(images), count).tolist())
    used = drawn(len(images), count, data.split)
    kept, held = parted(used, data.validation, data.split)
    indices = held if split == "validation" else kept
    return Drawn(images, indices.tolist())


class Shared:
    """The batches of indices that a loader draws, reduced to a process's share."""

    def __init__(self, drawn: Any, mine: slice | list[int]) -> None:
        self._drawn, self.mine = drawn, mine

    def __len__(self) -> int:
        return len(self._drawn)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._drawn:
            if isinstance(self.mine, slice):
                mine = batch[self.mine]
            else:
                mine = [batch[position] for position in self.mine]
            if mine:
                yield mine


def _refuse_other_sizes(images: Any, data: Data) -> None:
    """Raises DataError if the first image has another size than the network sees."""
    width, height = images[0][0].size
    if (width, height) != (data.image_size, data.image_size):
        raise DataError(
            f"data: the first image has {width} x {height} pixels. With"
            " recipe.crop_padding, images are not resized: set data.image_size to the"
            " side of the images, or recipe.crop_padding to 0"
        )


def _inner(loader: Any) -> Any:
    """Returns torch's loader inside one of timm's, which wraps it on a GPU."""
    return getattr(loader, "loader", loader)


def _shared(loader: Any, mine: slice | list[int]) -> Shared:
    """Makes one of timm's loaders return a share of each batch."""
    inner = _inner(loader)
    made = Shared(inner.batch_sampler, mine)
    # torch's loader refuses to set this attribute after its construction. timm bypasses
    # the check in the same way.
    object.__setattr__(inner, "batch_sampler", made)
    return made


class ImageBatches:
    """Batches from timm's loader.

    It makes random resized crops, flips, RandAugment and random erasing as the recipe
    says. timm's augmentations draw from the global random states, and its loader
    processes from torch's. All of them are seeded from `order` at the start of an
    epoch.
    """

    def __init__(
        self, data: Data, recipe: Recipe, device: torch.device, share: Share
    ) -> None:
        from timm.data import create_loader

        self._device = device
        train = _split(data, "train")
        if recipe.crop_padding:
            _refuse_other_sizes(train, data)
        self._repeated: RepeatedSampler | None = None
        if recipe.repeats > 1:
            self._repeated = RepeatedSampler(len(train), recipe.repeats)
        shape = (data.channels, data.image_size, data.image_size)
        mean, std = normalisation(data)
        prefetch = device.type == "cuda"
        common: dict[str, Any] = {
            "input_size": shape,
            # With several processes, augmentations must not be drawn in the process
            # that mixes: mixing must draw the same in all of them.
            "num_workers": max(data.workers, min(share.of - 1, 1)),
            "persistent_workers": False,
            "use_prefetcher": prefetch,
            "mean": mean,
            "std": std,
            "device": device,
        }
        self._train_loader = create_loader(
            train,
            batch_size=min(recipe.batch_size, len(train)),
            is_training=True,
            re_prob=recipe.random_erasing,
            re_mode="pixel",
            worker_seeding=partial(_worker_seed, share.rank) if share.rank else "all",
            **common,
        )
        train.transform = training_transform(data, recipe, prefetch=prefetch)
        if self._repeated is not None:
            # timm's sampler for repeats needs several processes. Without it timm
            # shuffles, which would separate the copies.
            _inner(self._train_loader).batch_sampler.sampler = self._repeated
        # Each split has its own data set, because timm sets the transform on the data
        # set itself.
        splits = ("validation", "test") if data.validation else ("test",)
        self._loaders = {}
        for split in splits:
            images = _split(data, split)
            self._loaders[split] = create_loader(
                images, batch_size=recipe.batch_size, is_training=False, **common
            )
            images.transform = evaluation_transform(data, recipe, prefetch=prefetch)
        self.updates = len(self._train_loader)
        self._share, self._shares = share, dict[str, Shared]()
        if share.of > 1:
            _shared(
                self._train_loader,
                share.training(min(recipe.batch_size, len(train)), recipe.mixes),
            )
            self._shares = {
                split: _shared(loader, share.test())
                for split, loader in self._loaders.items()
            }

    def train(self, order: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        if self._repeated is not None:
            self._repeated.draw(order)
        seed = int(torch.randint(2**32, (1,), generator=order))
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        for update, batch in enumerate(self._on_device(self._train_loader)):
            if update == 0 and self._share.rank:
                # The order has been drawn, the same in all processes. Draws from here
                # on differ by process.
                torch.manual_seed(seed + self._share.rank)
                random.seed(seed + self._share.rank)
            yield batch

    def test(
        self, whole: bool = False, validation: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        split = "validation" if validation else "test"
        if self._shares:
            self._shares[split].mine = slice(None) if whole else self._share.test()
        yield from self._on_device(self._loaders[split])

    def _on_device(self, loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in with_plain_errors(loader):
            yield (
                images.to(self._device, non_blocking=True),
                labels.to(self._device, non_blocking=True),
            )
