"""COCO's run-length encoding of masks, by faster-coco-eval."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.errors import DataError
from ablate.machine.provenance import install_extra


def _coder() -> Any:
    try:
        from faster_coco_eval.core import mask
    except ImportError as error:
        raise DataError(
            f"detection needs the package faster-coco-eval: {install_extra('dense')}"
        ) from error
    return mask


def encoded(mask: NDArray[np.uint8]) -> dict[str, Any]:
    """Returns the code of a mask (height, width)."""
    code: dict[str, Any] = _coder().encode(np.asfortranarray(mask, dtype=np.uint8))
    return code


def decoded(segmentation: Any, height: int, width: int) -> NDArray[np.uint8]:
    """Returns the mask (height, width) of polygons or of a code, as in COCO's files."""
    coder = _coder()
    if isinstance(segmentation, list):
        code = coder.merge(coder.frPyObjects(segmentation, height, width))
    elif isinstance(segmentation["counts"], list):
        code = coder.frPyObjects(segmentation, height, width)
    else:
        code = segmentation
    mask: NDArray[np.uint8] = coder.decode(code)
    return mask
