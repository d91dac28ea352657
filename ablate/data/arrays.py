"""Small data sets as uint8 tensors in memory."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ablate.data.catalogue import held_out
from ablate.errors import DataError
from ablate.records import Data

NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")
Splits = tuple[Tensor, Tensor, Tensor, Tensor]
"""Training images and labels, test images and labels."""


@dataclass(frozen=True)
class Arrays:
    """Images uint8 (n, channels, height, width) and labels int64 (n) of each split; no validation images unless asked for."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    validation: Tensor
    validation_labels: Tensor


@lru_cache(maxsize=2)
def load(data: Data) -> Arrays:
    """Reads a data set, once a process.

    Raises:
        DataError: the files are missing or malformed; the message says how to get them.
    """
    if data.name == "digits":
        images, labels, test_images, test_labels = _digits()
    elif data.path.endswith(".npz"):
        images, labels, test_images, test_labels = _npz(Path(data.path))
    else:
        images, labels, test_images, test_labels = _torchvision(data)
    for wanted, got, split in ((data.train_images, len(images), "train"), (data.test_images, len(test_images), "test")):
        if wanted and wanted > got:
            raise DataError(f"data: {split}_images = {wanted}, but {data.name} has {got}")
    train, held_out = parted(drawn(len(images), data.train_images), data.validation)
    test = drawn(len(test_images), data.test_images)
    return Arrays(images[train], labels[train], test_images[test], test_labels[test], images[held_out], labels[held_out])


def drawn(available: int, wanted: int | None) -> Tensor:
    """Indices of a subset, an even draw that is always the same (files are often ordered by class); for None all, in order."""
    if not wanted:
        return torch.arange(available)
    return torch.randperm(available, generator=torch.Generator().manual_seed(0))[:wanted]


def parted(indices: Tensor, validation: float) -> tuple[Tensor, Tensor]:
    """Training indices to those that stay and those that are held out: an even draw of that share, always the same."""
    if not validation:
        return indices, indices[:0]
    order = torch.randperm(len(indices), generator=torch.Generator().manual_seed(1))
    count = held_out(len(indices), validation)
    return indices[order[count:].sort().values], indices[order[:count].sort().values]


def repeated(count: int, repeats: int, order: torch.Generator) -> Tensor:
    """Indices of an epoch of `count` images in random order; with repeats, each image drawn stands so often in a row."""
    permutation = torch.randperm(count, generator=order)
    return permutation if repeats == 1 else permutation.repeat_interleave(repeats)[:count]


def _images(array: npt.NDArray[Any]) -> Tensor:
    """(n, h, w) or (n, h, w, c) to (n, c, h, w)."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.unsqueeze(1) if tensor.ndim == 3 else tensor.permute(0, 3, 1, 2).contiguous()


def _digits() -> Splits:
    """A fifth of the digits, stratified by class and always the same, is the test set. Grey values 0..16 become 0..255."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)
    labels = digits.target.astype(np.int64)
    x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    return _images(x_train), torch.from_numpy(y_train), _images(x_test), torch.from_numpy(y_test)


def _torchvision(data: Data) -> Splits:
    from torchvision import datasets

    classes = {
        "cifar10": datasets.CIFAR10,
        "cifar100": datasets.CIFAR100,
        "mnist": datasets.MNIST,
        "fashion-mnist": datasets.FashionMNIST,
    }
    made = classes[data.name]
    try:
        splits = [made(data.path, train=train, download=False) for train in (True, False)]
    except RuntimeError as error:
        raise DataError(
            f'data: {data.name} is not under {data.path}; fetch it with python -c "import torchvision; '
            f"torchvision.datasets.{made.__name__}('{data.path}', download=True)\", "
            f"or put it in Keras' layout at {data.path}.npz, or set data.path"
        ) from error
    train, test = ((_images(np.asarray(split.data)), torch.as_tensor(split.targets, dtype=torch.int64)) for split in splits)
    return (*train, *test)


def _read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    if not path.is_file():
        raise DataError(f"data: no file {path}")
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            missing = [key for key in NPZ_KEYS if key not in file]
            if missing:
                raise DataError(f"data: {path} lacks {', '.join(missing)}; it needs {', '.join(NPZ_KEYS)}")
            return {key: file[key] for key in NPZ_KEYS}
    except (ValueError, TypeError, AttributeError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"data: {path} is not a readable .npz without pickles: {error}") from error


def npz_shape(path: Path) -> tuple[int, int, int, int]:
    """Image side, channels, number of classes and of training images of an `.npz` in the Keras layout."""
    arrays = _read_npz(path)
    for split in ("train", "test"):
        images, labels = arrays[f"x_{split}"], arrays[f"y_{split}"].reshape(-1)
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[1] != images.shape[2]:
            raise DataError(
                f"data: x_{split} in {path} is {images.dtype}{list(images.shape)}; it must be uint8 (n, side, side[, channels])"
            )
        if len(images) != len(labels) or not np.issubdtype(labels.dtype, np.integer) or (len(labels) and labels.min() < 0):
            raise DataError(f"data: y_{split} in {path} must hold one class number from 0 up for each of {len(images)} images")
        if not len(images) or not images.shape[1]:
            raise DataError(f"data: x_{split} in {path} is empty: {list(images.shape)}")
    images, tested = arrays["x_train"], arrays["x_test"]
    if images.shape[1:] != tested.shape[1:]:
        raise DataError(f"data: x_train in {path} has images of {list(images.shape[1:])}, x_test of {list(tested.shape[1:])}")
    if arrays["y_test"].max() > arrays["y_train"].max():
        raise DataError(
            f"data: y_test in {path} has class {arrays['y_test'].max()}, y_train none beyond {arrays['y_train'].max()}"
        )
    return images.shape[1], images.shape[3] if images.ndim == 4 else 1, int(arrays["y_train"].max()) + 1, len(images)


def _npz(path: Path) -> Splits:
    npz_shape(path)
    arrays = _read_npz(path)
    labels = {split: torch.from_numpy(arrays[f"y_{split}"].reshape(-1).astype(np.int64)) for split in ("train", "test")}
    return _images(arrays["x_train"]), labels["train"], _images(arrays["x_test"]), labels["test"]
