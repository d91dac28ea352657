"""Reads image files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ablate.errors import DataError


class FolderImages(Dataset[Any]):
    """The images of a folder with one folder per class, in the order of timm's reader.

    timm's own `ImageDataset` takes the next image in the place of one that it cannot
    read. A metric on such images would be silently wrong, so this class raises.

    Attributes:
        transform: what timm's loader applies to each image.
    """

    transform: Any = None

    def __init__(self, root: Path, classes: list[str]) -> None:
        from timm.data.readers.reader_image_folder import ReaderImageFolder

        numbers = {name: number for number, name in enumerate(classes)}
        self._reader = ReaderImageFolder(str(root), class_map=numbers)

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Returns an image and the number of its class.

        Raises:
            DataError: the file cannot be read as an image.
        """
        from PIL import Image

        file, label = self._reader[index]
        try:
            with file:
                image = Image.open(file).convert("RGB")
        # Pillow raises SyntaxError for a broken PNG.
        except (OSError, SyntaxError, ValueError) as error:
            name = self._reader.filename(index, absolute=True)
            raise DataError(
                f"data: {name} cannot be read as an image: {error}; replace the file, or"
                " remove it"
            ) from None
        if self.transform is None:
            return image, label
        return self.transform(image), label


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
    """Returns an image as uint8 (channels, height, width).

    Args:
        mode: of Pillow; `L` for one channel.

    Raises:
        DataError: the file is missing or is no image.
    """
    from PIL import Image

    try:
        with Image.open(file) as image:
            if mode == "L" and image.mode not in ("L", "P"):
                raise DataError(
                    f"data: {file} has the mode {image.mode}; an annotation has one"
                    " channel of 8 bits"
                )
            # The palette of an annotation is only for the eye: its numbers count.
            is_numbers = mode == "L" and image.mode == "P"
            pixels = np.array(image if is_numbers else image.convert(mode))
    except OSError as error:
        raise DataError(f"data: {file} cannot be read: {error}") from None
    return torch.from_numpy(np.atleast_3d(pixels).transpose(2, 0, 1).copy())
