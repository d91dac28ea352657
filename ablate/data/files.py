"""Reads image files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ablate.errors import DataError


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
