"""Reads image files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ablate.data.index import Index, opened, rgb, upright
from ablate.errors import DataError


class FolderImages(Dataset[Any]):
    """The images of one split of an index.

    timm's own `ImageDataset` takes the next image in the place of one that it cannot
    read. A metric on such images would be silently wrong, so this class raises.

    Args:
        stored: takes pixels in the order in which they are stored, without the EXIF
            orientation.

    Attributes:
        transform: what timm's loader applies to each image.
    """

    transform: Any = None

    def __init__(self, index: Index, split: str, *, stored: bool = False) -> None:
        self._files = [
            (index.file(split, image), image.label) for image in index.images[split]
        ]
        self._stored = stored

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Returns an image and the number of its class.

        Raises:
            DataError: the file cannot be read as an image.
        """
        file, label = self._files[index]
        with opened(file) as image:
            if self._stored:
                shown = rgb(image)
            else:
                shown = rgb(upright(image))
        if self.transform is None:
            return shown, label
        return self.transform(shown), label


def with_plain_errors(loader: Iterable[Any]) -> Iterator[Any]:
    """Yields what a loader of torch yields.

    A loading process adds its traceback to the message of an error. Here only the
    message is left.

    Raises:
        DataError: a file cannot be read.
    """
    try:
        yield from loader
    except DataError as error:
        _, _, message = str(error).rpartition(f"{DataError.__name__}: ")
        raise DataError(message.strip()) from None


def picture(file: Path, mode: str = "RGB") -> Tensor:
    """Returns the stored pixels of an image as uint8 (channels, height, width).

    Args:
        mode: `RGB`, or `L` for the numbers of an annotation.

    Raises:
        DataError: the file is missing or is no image.
    """
    with opened(file) as image:
        if mode == "L" and image.mode not in ("L", "P"):
            raise DataError(
                f"data: {file} has the mode {image.mode}; an annotation has one channel"
                " of 8 bits"
            )
        if mode == "L":
            # The palette of an annotation is only for the eye: its numbers count.
            pixels = np.array(image)
        else:
            pixels = np.array(rgb(image))
    return torch.from_numpy(np.atleast_3d(pixels).transpose(2, 0, 1).copy())
