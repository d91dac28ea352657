"""Small data sets as uint8 tensors in memory."""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ablate.data.published_sets import PUBLISHED, open_published
from ablate.data.splits import held_out
from ablate.errors import AblateError, DataError, shortened
from ablate.identity import DIGITS
from ablate.own import registry
from ablate.records import MOST_CLASSES, MOST_SIDE, Data

NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")
# The most images of a split that are held in memory: a hundred times ImageNet.
# Both draws of a split have a generator each: the subset, and the images held out.
SUBSET, HELD_OUT = 0, 1
MOST_IMAGES = 100_000_000
SPLITS = ("train", "test")
# The largest factor by which DEFLATE can shrink data: a file that claims more is wrong.
DEFLATED = 1_040
# Training images and labels, test images and labels.
Splits = tuple[Tensor, Tensor, Tensor, Tensor]
Labels = npt.NDArray[Any]


@dataclass(frozen=True)
class Arrays:
    """Images uint8 (n, channels, height, width) and labels int64 (n) of each split.

    There are no validation images unless they are asked for.
    """

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    validation: Tensor
    validation_labels: Tensor


@lru_cache(maxsize=2)
def load(data: Data) -> Arrays:
    """Reads a data set, once per process.

    Raises:
        DataError: the files are missing or malformed; the message says how to get them.
    """
    if data.name in registry.of_kind("data set"):
        images, labels, test_images, test_labels = _own(data.name)
    elif data.name == "digits":
        images, labels, test_images, test_labels = _digits()
    elif data.path.endswith(".npz"):
        images, labels, test_images, test_labels = _npz(Path(data.path))
    else:
        images, labels, test_images, test_labels = _torchvision(data)
    for number, got, split in (
        (data.train_images, len(images), "train"),
        (data.test_images, len(test_images), "test"),
    ):
        if number and number > got:
            raise DataError(
                f"data: {split}_images = {number}, but {data.name} has only {got}"
                f" {split} images"
            )
    train, held_out = parted(
        drawn(len(images), data.train_images, data.split), data.validation, data.split
    )
    test = drawn(len(test_images), data.test_images)
    return Arrays(
        train=images[train],
        train_labels=labels[train],
        test=test_images[test],
        test_labels=test_labels[test],
        validation=images[held_out],
        validation_labels=labels[held_out],
    )


def drawn(available: int, number: int | None, seed: int = 0) -> Tensor:
    """Returns the indices of a subset; all, in order, if `wanted` is None.

    The draw is uniform and depends on the numbers and the seed alone. A subset of the
    first images would not do, as files are often ordered by class.
    """
    if not number:
        return torch.arange(available)
    order = torch.randperm(available, generator=_generator(seed, SUBSET))
    return order[:number]


def parted(indices: Tensor, validation: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Splits training indices into those that stay and those that are held out.

    The draw is uniform and depends on the numbers and the seed alone.
    """
    if not validation:
        return indices, indices[:0]
    order = torch.randperm(len(indices), generator=_generator(seed, HELD_OUT))
    count = held_out(len(indices), validation)
    return indices[order[count:].sort().values], indices[order[:count].sort().values]


def _generator(seed: int, draw: int) -> torch.Generator:
    """Returns the generator of one of the two draws of a split.

    Two draws of different seeds never share their numbers.
    """
    return torch.Generator().manual_seed(2 * seed + draw)


def repeated(count: int, repeats: int, order: torch.Generator) -> Tensor:
    """Returns the indices of an epoch of `count` images in random order.

    With `repeats`, each image drawn appears that many times in a row. The epoch does
    not get longer: it has fewer distinct images.
    """
    permutation = torch.randperm(count, generator=order)
    if repeats == 1:
        return permutation
    return permutation.repeat_interleave(repeats)[:count]


@registry.cached
def _own(name: str) -> Splits:
    return read_own(name)


def read_own(name: str) -> Splits:
    """Calls the function of a user's data set and checks what it returns.

    Raises:
        DataError: it fails, or returns something else than documented.
    """
    try:
        given = registry.of_kind("data set")[name]()
    except Exception as error:
        raise DataError(
            f"data: {name} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(given, tuple | list) or len(given) != len(NPZ_KEYS):
        raise DataError(
            f"data: {name} must return four arrays: {', '.join(NPZ_KEYS)}; see"
            " docs/data.md"
        )
    arrays = {}
    for key, values in zip(NPZ_KEYS, given, strict=True):
        try:
            arrays[key] = np.asarray(values)
        # numpy raises several types, and a tensor on a GPU its own.
        except Exception as error:
            raise DataError(
                f"data: {key} of {name} is no array: {shortened(str(error))}; lists must"
                " have the same length everywhere"
            ) from error
    for split in ("train", "test"):
        _check_own(name, split, arrays[f"x_{split}"], arrays[f"y_{split}"])
    if arrays["x_train"].shape[1:] != arrays["x_test"].shape[1:]:
        raise DataError(
            f"data: {name} has training images of {arrays['x_train'].shape[1:]} and"
            f" test images of {arrays['x_test'].shape[1:]}; both must have the same"
            " shape"
        )
    return (
        _images(arrays["x_train"]),
        torch.from_numpy(arrays["y_train"].astype(np.int64)),
        _images(arrays["x_test"]),
        torch.from_numpy(arrays["y_test"].astype(np.int64)),
    )


def _check_own(
    name: str, split: str, images: npt.NDArray[Any], labels: npt.NDArray[Any]
) -> None:
    """Raises DataError if images and labels of a split are not as documented."""
    problem = ""
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        problem = (
            f"x_{split} is {images.dtype} {images.shape}; it must be uint8 (n, height,"
            " width) or (n, height, width, channels)"
        )
    elif images.shape[1] != images.shape[2]:
        problem = f"x_{split} is {images.shape}; images must be square"
    elif labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        problem = (
            f"y_{split} is {labels.dtype} {labels.shape}; it must be integers"
            f" ({len(images)},)"
        )
    elif not len(images):
        problem = f"x_{split} is empty"
    elif labels.min() < 0:
        problem = f"y_{split} has the label {labels.min()}; labels begin with 0"
    if problem:
        raise DataError(f"data: {name}: {problem}; see docs/data.md")


def own_fingerprint(name: str) -> str:
    """Returns a hash of the images and labels of a user's data set.

    The function may read files, which are not part of its code.
    """
    digest = hashlib.sha256()
    for tensor in _own(name):
        digest.update(f"{tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:DIGITS]


@dataclass(frozen=True)
class Shape:
    """What the arrays of a data set have, under the names of `DataSet`.

    `images` is the number of training images.
    """

    image_size: int
    channels: int
    classes: int
    images: int
    test_images: int


def _refuse_classes(where: str, train: Labels, test: Labels) -> None:
    """Raises DataError unless every class from 0 to the last has training images.

    A class without images would be counted anyway. Only a new description is refused.
    What was stored before stays readable.

    Args:
        train: labels of the training images.
        test: those of the test images.
    """
    present = np.unique(train)
    lowest = int(present[0])
    if lowest:
        remedy = f"subtract {lowest} from y_train and y_test"
        if int(test.min()) < lowest:
            remedy = "give both splits the same classes"
        raise DataError(
            f"data: y_train in {where} starts at class {lowest}, y_test at"
            f" {int(test.min())}; classes count from 0, so {remedy}"
        )
    if len(present) == 1:
        raise DataError(
            f"data: y_train in {where} has class 0 only; a network can only learn to"
            " tell two or more classes apart"
        )
    last = int(present[-1])
    if len(present) <= last:
        gaps = np.setdiff1d(np.arange(min(last, MOST_CLASSES)), present)
        raise DataError(
            f"data: y_train in {where} has no image of class {gaps[0]}, but of class"
            f" {last}; number the classes without gaps, as"
            " numpy.unique(y, return_inverse=True)[1] does for the labels of both splits"
        )
    unseen = np.setdiff1d(test, present)
    if len(unseen):
        raise DataError(
            f"data: y_test in {where} has class {unseen[0]}, but the highest class in"
            f" y_train is {last}; each test class needs training images"
        )


def own_shape(name: str) -> Shape:
    """Returns the shape of a user's data set.

    Raises:
        DataError: its function fails or returns something else.
    """
    images, labels, test_images, test_labels = _own(name)
    _refuse_classes(name, labels.numpy(), test_labels.numpy())
    return Shape(
        image_size=images.shape[-1],
        channels=images.shape[1],
        classes=int(max(labels.max(), test_labels.max())) + 1,
        images=len(images),
        test_images=len(test_images),
    )


def _images(array: npt.NDArray[Any]) -> Tensor:
    """(n, h, w) or (n, h, w, c) to (n, c, h, w)."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if tensor.ndim == 3:
        return tensor.unsqueeze(1)
    return tensor.permute(0, 3, 1, 2).contiguous()


def _digits() -> Splits:
    """Splits off a fifth of the digits as the test set.

    The split is stratified by class and always the same. Grey values 0..16 become
    0..255.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)
    labels = digits.target.astype(np.int64)
    x_train, x_test, y_train, y_test = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=labels
    )
    return (
        _images(x_train),
        torch.from_numpy(y_train),
        _images(x_test),
        torch.from_numpy(y_test),
    )


def _torchvision(data: Data) -> Splits:
    labels = PUBLISHED[data.name].labels
    train, test = (
        open_published(data.name, data.path, split) for split in ("train", "test")
    )
    return (
        _pixels(train.data),
        torch.as_tensor(np.asarray(getattr(train, labels)), dtype=torch.int64),
        _pixels(test.data),
        torch.as_tensor(np.asarray(getattr(test, labels)), dtype=torch.int64),
    )


def _pixels(images: Any) -> Tensor:
    """Images in any of torchvision's layouts as uint8 (n, channels, height, width)."""
    array = np.asarray(images)
    if array.ndim == 4 and array.shape[1] in (1, 3) and array.shape[2] > 3:
        # Channels come first already.
        return torch.from_numpy(np.ascontiguousarray(array))
    return _images(array)


@dataclass(frozen=True)
class Header:
    """The header of an array in an `.npz`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@contextmanager
def _readable(path: Path) -> Iterator[zipfile.ZipFile]:
    """Opens an `.npz`.

    Raises:
        DataError: the file is missing or not a readable `.npz`; also for errors while
            it is open.
    """
    # Unlike Path.is_file, this returns False for names that no file can have.
    if not os.path.isfile(path):
        raise DataError(f"data: no file {shortened(str(path))}")
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except AblateError:
        raise
    except Exception as error:
        # A truncated or encrypted file, another compression or an invalid header each
        # raise their own type of error.
        raise DataError(
            f"data: {path} is not a readable .npz without pickles:"
            f" {shortened(str(error), 300)}"
        ) from error


def _headers(archive: zipfile.ZipFile, path: Path) -> dict[str, Header]:
    """Returns the headers of the four arrays.

    Each header is checked against the size of the data that follow it, so that it
    cannot claim more memory than the file has data.

    Raises:
        DataError: an array is missing, or does not match its header.
    """
    members = {
        member.filename.removesuffix(".npy"): member for member in archive.infolist()
    }
    missing = [key for key in NPZ_KEYS if key not in members]
    if missing:
        raise DataError(
            f"data: {path} lacks {', '.join(missing)}; it needs {', '.join(NPZ_KEYS)},"
            f" and has {shortened(', '.join(members)) or 'nothing'}"
        )
    headers = {}
    for key in NPZ_KEYS:
        member = members[key]
        with archive.open(member) as stream:
            header = _header(stream)
            start = stream.tell()
        # Sizes in the directory of an archive are claims too. Deflate shrinks zeros to
        # a thousandth at most, so more bytes than that cannot come out.
        if member.compress_type == zipfile.ZIP_DEFLATED:
            most = DEFLATED * member.compress_size
        else:
            most = member.compress_size
        if (
            min(header.shape, default=1) < 0
            or start + header.bytes != member.file_size
            or member.file_size > most
        ):
            raise DataError(
                f"data: {key} in {path} claims {header.dtype}{list(header.shape)},"
                f" {header.bytes:,} bytes, but the file does not hold them; write it"
                " again with numpy.savez"
            )
        headers[key] = header
    return headers


def _header(stream: IO[bytes]) -> Header:
    """Returns the header of one array.

    Raises ValueError if it is invalid, or if the array has pickled objects.
    """
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(stream)
    if version not in readers:
        raise ValueError(f"an array of the unknown version {version}")
    shape, _, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError("an array of Python objects, which are pickled")
    return Header(shape, dtype)


def described_npz(path: Path) -> Shape:
    """Returns the shape of an `.npz` that a space names.

    Raises:
        DataError: as `npz_shape`, or no training image has class 0.
    """
    shape = npz_shape(path)
    with _readable(path) as archive:
        labels = [_array(archive, f"y_{split}") for split in SPLITS]
    _refuse_classes(str(path), *labels)
    return shape


def npz_shape(path: Path) -> Shape:
    """Returns the shape of an `.npz` in the Keras layout.

    Only headers and labels are read.

    Raises:
        DataError: the file is missing or malformed, or has other content.
    """
    with _readable(path) as archive:
        headers = _headers(archive, path)
        for split in ("train", "test"):
            _check_images(headers[f"x_{split}"], headers[f"y_{split}"], split, path)
        images, tested = headers["x_train"], headers["x_test"]
        if images.shape[1:] != tested.shape[1:]:
            raise DataError(
                f"data: x_train in {path} has images of {list(images.shape[1:])},"
                f" x_test of {list(tested.shape[1:])}; give both the same shape"
            )
        highest = {
            split: _highest_label(archive, path, split) for split in ("train", "test")
        }
    if highest["test"] > highest["train"]:
        raise DataError(
            f"data: y_test in {path} has class {highest['test']}, but the highest"
            f" class in y_train is {highest['train']}; each test class needs training"
            " images"
        )
    return Shape(
        image_size=images.shape[1],
        channels=images.shape[3] if len(images.shape) == 4 else 1,
        classes=highest["train"] + 1,
        images=images.shape[0],
        test_images=tested.shape[0],
    )


def _check_images(images: Header, labels: Header, split: str, path: Path) -> None:
    """Raises DataError unless these are square images, with one integer label each."""
    shape = list(images.shape)
    if images.dtype != np.uint8 or len(shape) not in (3, 4) or shape[1] != shape[2]:
        raise DataError(
            f"data: x_{split} in {path} is {images.dtype}{shape}; it must be uint8 (n,"
            " side, side[, channels])"
        )
    if not math.prod(shape):
        raise DataError(f"data: x_{split} in {path} is empty: {shape}")
    if shape[0] > MOST_IMAGES or shape[1] > MOST_SIDE or shape[-1] > MOST_SIDE:
        raise DataError(
            f"data: x_{split} in {path} is {shape}; an .npz may hold at most"
            f" {MOST_IMAGES:,} images, each with at most {MOST_SIDE:,} pixels a side; for"
            " more or larger images, use data: {name: folder}"
        )
    if math.prod(labels.shape) != shape[0] or labels.dtype.kind not in "iu":
        raise DataError(
            f"data: y_{split} in {path} is {labels.dtype}{list(labels.shape)}; it must"
            f" hold one class number from 0 up for each of {shape[0]} images"
        )


def _highest_label(archive: zipfile.ZipFile, path: Path, split: str) -> int:
    """Returns the highest class number of a split.

    Raises DataError unless all are from 0 to `MOST_CLASSES` - 1.
    """
    labels = _array(archive, f"y_{split}")
    lowest = int(labels.min())
    highest = int(labels.max())
    if lowest < 0 or highest >= MOST_CLASSES:
        wrong = lowest if lowest < 0 else highest
        raise DataError(
            f"data: y_{split} in {path} has class {wrong}; it must hold one class"
            f" number from 0 up for each image, {MOST_CLASSES - 1:,} at most"
        )
    return highest


def _array(archive: zipfile.ZipFile, key: str) -> npt.NDArray[Any]:
    """Returns an array whose header has been checked."""
    name = f"{key}.npy" if f"{key}.npy" in archive.namelist() else key
    with archive.open(name) as stream:
        array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _npz(path: Path) -> Splits:
    npz_shape(path)
    with _readable(path) as archive:
        arrays = {key: _array(archive, key) for key in NPZ_KEYS}
    labels = {
        split: torch.from_numpy(arrays[f"y_{split}"].reshape(-1).astype(np.int64))
        for split in ("train", "test")
    }
    return (
        _images(arrays["x_train"]),
        labels["train"],
        _images(arrays["x_test"]),
        labels["test"],
    )
