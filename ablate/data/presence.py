"""Whether the files of a data set are on this machine."""

from __future__ import annotations

import os

from ablate.data.published_sets import PUBLISHED, missing_text
from ablate.records import Data

# Folders that must be below the path of a data set.
_FOLDERS = {
    "imagenet": ("train", "val"),
    "coco": ("train2017", "val2017", "annotations"),
    "ade20k": ("images", "annotations"),
}


def problem(data: Data) -> str:
    """Returns that the data are not here and how to get them; empty if they are.

    It looks only whether there is anything at their path. Data sets that a space cannot
    be read without, such as `.npz` files, are here.
    """
    if data.name in PUBLISHED:
        return missing_text(data.name, data.path) if _is_empty(data.path) else ""
    for folder in _FOLDERS.get(data.name, ()):
        if _is_empty(os.path.join(data.path, folder)):
            listed = ", ".join(f"{name}/" for name in _FOLDERS[data.name])
            return (
                f"data: {data.name} is not under {data.path}, which needs {listed};"
                " download it, or set data.path"
            )
    return ""


def _is_empty(path: str) -> bool:
    """Whether there is neither a file nor a folder with something in it."""
    if os.path.isdir(path):
        return not os.listdir(path)
    return not os.path.isfile(path)
