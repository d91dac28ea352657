"""Image data sets of Hugging Face's package `datasets`: a folder, or what its cache has.

Nothing is downloaded here, and no code of a data set runs.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from ablate.errors import DataError, shortened
from ablate.identity import DIGITS

PACKAGE = "datasets"
# A data set of the hub: OWNER/NAME.
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
TEST_SPLITS = ("test", "validation", "valid", "val")
# Names of the column with classes, if several have classes.
LABEL_COLUMNS = ("label", "labels", "fine_label", "class")


@dataclass(frozen=True)
class HuggingFaceSet:
    """Two splits, and the columns with images and classes.

    Attributes:
        classes: the number of classes.
        numbers: the training class of each class of the test split, where both splits
            number the same names differently; empty: they are equal.
    """

    train: Any
    test: Any
    image: str
    label: str
    classes: int
    numbers: tuple[int, ...] = ()

    def labels(self, split: str) -> list[int]:
        """Returns the class of each image, by the numbers of the training images."""
        if split == "train":
            return [int(label) for label in self.train[self.label]]
        return [self.training_class(int(label)) for label in self.test[self.label]]

    def training_class(self, label: int) -> int:
        """Returns the training class of a class of the test split."""
        is_known = 0 <= label < len(self.numbers)
        return self.numbers[label] if is_known else label


def is_on_hub(path: str) -> bool:
    """Whether a path is the name of a data set of the hub, and no folder."""
    return HUB_NAME.fullmatch(path) is not None and not os.path.isdir(path)


@lru_cache(maxsize=2)
def open_set(path: str, test_split: str = "") -> HuggingFaceSet:
    """Opens a data set in a folder or in the cache.

    Args:
        path: a folder that `save_to_disk` wrote or with files that `load_dataset` reads,
            or OWNER/NAME on the hub.
        test_split: the split for the test; empty: the first of the usual ones whose
            classes are no secret.

    Raises:
        DataError: it is not here, the package is missing, or it has no images with
            classes.
    """
    if find_spec(PACKAGE) is None:
        raise DataError(
            "data: huggingface needs a package that is not installed: pip install"
            f" {PACKAGE}"
        )
    splits = _splits(path)
    if "train" not in splits:
        raise DataError(
            f"data: {path} has the splits {', '.join(splits)}, and needs one called train"
        )
    usual = [name for name in TEST_SPLITS if name in splits]
    if test_split not in ("", *splits):
        raise DataError(
            f"data: {path} has no split {test_split}; it has {', '.join(splits)}"
        )
    if not usual and not test_split:
        raise DataError(
            f"data: {path} has the splits {', '.join(splits)}, and needs a test set:"
            f" {', '.join(TEST_SPLITS)}; name one, as in test_split: {[*splits][-1]}"
        )
    train = splits["train"]
    image, label, classes = _columns(path, train.features)
    chosen = test_split or next(
        (name for name in usual if not _is_secret(splits[name], label)), usual[0]
    )
    test = splits[chosen]
    numbers = _numbers(path, chosen, train.features[label], test.features.get(label))
    opened = HuggingFaceSet(train, test, image, label, classes, numbers)
    if not classes:
        highest = max(max(opened.labels(split)) for split in ("train", "test"))
        opened = replace(opened, classes=highest + 1)
    return _checked(path, opened)


def _is_secret(rows: Any, label: str) -> bool:
    """Whether a split has no class of any image: all are -1, or none is given."""
    if label not in rows.features:
        return True
    return all(number is None or number < 0 for number in rows[label])


def _numbers(path: str, split: str, train: Any, test: Any) -> tuple[int, ...]:
    """Returns the training class of each class of the test split; empty: they are equal.

    Raises:
        DataError: the test split has classes that the training images do not have.
    """
    names, others = getattr(train, "names", None), getattr(test, "names", None)
    if not names or not others or names == others:
        return ()
    unknown = [name for name in others if name not in names]
    if unknown:
        raise DataError(
            f"data: the split {split} of {path} has the class {shortened(unknown[0])},"
            f" which train does not have: {shortened(', '.join(names))}"
        )
    return tuple(names.index(name) for name in others)


def _splits(path: str) -> Any:
    import datasets

    datasets.disable_progress_bars()
    try:
        if os.path.isfile(os.path.join(path, "dataset_dict.json")):
            return datasets.load_from_disk(path)
        with _offline():
            return datasets.load_dataset(path)
    # Each kind of missing or damaged data has its own exception.
    except Exception as error:
        what = f"data: {path} cannot be read: {shortened(str(error))}"
        if is_on_hub(path):
            what = (
                f"data: {path} is not in the cache of Hugging Face; fetch it with: python"
                f" -c 'from datasets import load_dataset; load_dataset(\"{path}\")'"
                f" ({shortened(str(error))})"
            )
        raise DataError(what) from error


@contextmanager
def _offline() -> Iterator[None]:
    """While this lasts, the package asks no server, as with HF_HUB_OFFLINE=1."""
    import datasets
    from huggingface_hub import constants

    both: tuple[Any, ...] = (datasets.config, constants)
    before = [module.HF_HUB_OFFLINE for module in both]
    for module in both:
        module.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for module, value in zip(both, before, strict=True):
            module.HF_HUB_OFFLINE = value


def _columns(path: str, features: Any) -> tuple[str, str, int]:
    """The columns with images and with classes, and the number of classes or 0."""
    import datasets

    images = [n for n, kind in features.items() if isinstance(kind, datasets.Image)]
    named = {n: k for n, k in features.items() if isinstance(k, datasets.ClassLabel)}
    whole = [
        name
        for name, kind in features.items()
        if str(getattr(kind, "dtype", "")).startswith(("int", "uint"))
    ]
    labels = list(named) or [name for name in whole if name in LABEL_COLUMNS]
    if len(labels) > 1:
        labels = [name for name in LABEL_COLUMNS if name in labels][:1]
    if len(images) != 1 or len(labels) != 1:
        listed = ", ".join(f"{name} ({kind})" for name, kind in features.items())
        raise DataError(
            f"data: {path} must have one column of images, and one of classes called"
            f" {' or '.join(LABEL_COLUMNS)}; it has {shortened(listed)}"
        )
    classes = named[labels[0]].num_classes if labels[0] in named else 0
    return images[0], labels[0], classes


def _checked(path: str, opened: HuggingFaceSet) -> HuggingFaceSet:
    """Raises DataError unless each image has a class."""
    for split in ("train", "test"):
        labels = opened.labels(split)
        if not labels:
            raise DataError(f"data: the split {split} of {path} is empty")
        wrong = next((n for n in labels if not 0 <= n < opened.classes), None)
        if wrong is not None:
            raise DataError(
                f"data: the split {split} of {path} has the class {wrong}; classes are"
                f" numbers from 0 to {opened.classes - 1}. A test set whose classes are"
                " secret cannot be used; name another split, as in test_split: validation"
            )
    return opened


def describe_set(path: str, test_split: str = "") -> tuple[int, int, str]:
    """Returns the numbers of classes and training images, and a hash of the content.

    Raises DataError as `open_set`.
    """
    opened = open_set(path, test_split)
    return opened.classes, len(opened.train), fingerprint(opened)


def fingerprint(opened: HuggingFaceSet) -> str:
    """Returns a hash of the classes and of the sizes of the images, in their order."""
    digest = hashlib.sha256()
    for split, rows in (("train", opened.train), ("test", opened.test)):
        digest.update(np.asarray(opened.labels(split), dtype=np.int64).tobytes())
        for chunk in rows.with_format("arrow").data.column(opened.image).chunks:
            digest.update(_sizes(chunk).tobytes())
    return digest.hexdigest()[:DIGITS]


def _sizes(images: Any) -> Any:
    """The sizes of images in bytes, (n) int64, without reading them."""
    from pyarrow import compute

    sizes = compute.binary_length(images.field("bytes")).to_pylist()
    paths = images.field("path").to_pylist()
    return np.array(
        [
            os.path.getsize(path) if size is None else size
            for size, path in zip(sizes, paths, strict=True)
        ],
        dtype=np.int64,
    )
