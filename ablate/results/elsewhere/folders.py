"""Reads runs from a folder: TensorBoard, Lightning, timm, transformers, Keras, DeiT."""

from __future__ import annotations

import csv
import fnmatch
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ablate.errors import AblateError, shortened
from ablate.readers.files import rows_of
from ablate.readers.words import (
    CHECKPOINT,
    HPARAMS,
    ITEM_FILES,
    OTHER_FILES,
    PARTS,
    RUN_FILES,
    SETTING_FILES,
)
from ablate.results.elsewhere.names import named, named_alike
from ablate.results.elsewhere.runs import Curve, Runs, of_curves
from ablate.results.elsewhere.settings import settings_beside

# The most folders of runs that are read, and the most folders that are looked into.
MOST_RUNS = 20_000
MOST_FOLDERS = 200_000
# What a broken file of another program may lead to.
BROKEN = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    csv.Error,
)


@dataclass
class _Run:
    """A run of a folder.

    Attributes:
        folder: where its settings are.
        files: its files of metrics; each with what its metrics are called in front.
    """

    folder: Path
    files: list[tuple[Path, str]] = field(default_factory=list)


def read_folder(path: Path, names: str) -> Runs:
    """Returns the runs of a folder.

    A run is a folder with files of metrics; several tables of one kind in a folder are
    several runs.

    Args:
        names: how the folders of runs are named; empty: in a usual way.

    Raises:
        AblateError: there is none, or a file cannot be read.
    """
    found = _folders(path)
    files = _of_forms(found, RUN_FILES) or _of_forms(found, OTHER_FILES)
    if not files:
        _refuse_other_tools(path, found)
        raise AblateError(
            f"{path} has no folder with metrics; looked for"
            f" {', '.join((*RUN_FILES, *OTHER_FILES))}"
        )
    runs = _runs(path, files)
    if len(runs) > MOST_RUNS:
        raise AblateError(
            f"{path} has {len(runs):,} runs; at most {MOST_RUNS:,} are read"
        )
    curves = [_curve(name, run, path) for name, run in runs.items()]
    if names:
        named(curves, names)
        note = ""
    else:
        note = named_alike(curves)
    read = of_curves(curves, str(path))
    return replace(read, notes=(*read.notes, *([note] if note else [])))


def _folders(path: Path) -> dict[Path, list[str]]:
    """Returns the names of the files of each folder. Links are not followed.

    Raises:
        AblateError: there are too many folders.
    """
    found: dict[Path, list[str]] = {}
    for folder, below, files in os.walk(path):
        below.sort()
        found[Path(folder)] = sorted(files)
        if len(found) > MOST_FOLDERS:
            raise AblateError(
                f"{path} has more than {MOST_FOLDERS:,} folders; name one with the runs"
            )
    return found


def _of_forms(
    found: Mapping[Path, Sequence[str]], forms: Sequence[str]
) -> dict[Path, list[Path]]:
    """Returns the files of metrics by folder."""
    chosen: dict[Path, list[Path]] = {}
    for folder, files in found.items():
        for name in files:
            file = folder / name
            is_meant = _has_form(name, forms) and not _has_form(name, ITEM_FILES)
            # Anything else, such as a pipe, would block.
            if is_meant and name not in SETTING_FILES and file.is_file():
                chosen.setdefault(folder, []).append(file)
    return chosen


def _has_form(name: str, forms: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, form) for form in forms)


def _runs(path: Path, files: Mapping[Path, Sequence[Path]]) -> dict[str, _Run]:
    """Returns the runs by name. A folder below a run may be a part of it."""
    runs: dict[str, _Run] = {}
    for folder in sorted(files):
        above = folder.parent
        if folder != path and above in files and CHECKPOINT.fullmatch(folder.name):
            continue
        if folder != path and above in files and HPARAMS.fullmatch(folder.name):
            owner, prefix = above, ""
        elif folder not in (path,) and folder.name.lower() in PARTS and above != path:
            owner, prefix = above, f"{folder.name}/"
        else:
            owner, prefix = folder, ""
        name = _text(owner.relative_to(path)) if owner != path else _text(path.name)
        # Files of these names belong to one run; others of one kind are several.
        own = [file for file in files[folder] if _has_form(file.name, RUN_FILES)]
        others = [file for file in files[folder] if file not in own]
        if len({file.suffix for file in others}) == len(others):
            own, others = [*own, *others], []
        for file in own:
            runs.setdefault(name, _Run(owner)).files.append((file, prefix))
        for file in others:
            stem = _text(file.stem)
            run = stem if folder == path else f"{name}/{stem}"
            runs.setdefault(run, _Run(folder)).files.append((file, ""))
    return runs


def _text(path: Path | str) -> str:
    """Returns a path as text; bytes that are no UTF-8 as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _curve(name: str, run: _Run, path: Path) -> Curve:
    """Returns a run with what it declares, and with the last values of its metrics."""
    settings = settings_beside(run.folder)
    if run.folder != path and not settings:
        settings = settings_beside(run.folder.parent)
    curve = Curve(name=name, settings=settings)
    for file, prefix in run.files:
        try:
            curve.follow(rows_of(file), prefix)
        except BROKEN as error:
            raise AblateError(
                f"{_text(file)} cannot be read: {shortened(str(error), 200)}"
            ) from error
    return curve


def _refuse_other_tools(path: Path, found: Mapping[Path, Sequence[str]]) -> None:
    """Raises AblateError for folders of tools that can convert them."""
    if any("meta.yaml" in files for files in found.values()):
        raise AblateError(
            f"{path} is a folder of MLflow; convert it with: mlflow experiments csv -x ID"
            " -o runs.csv"
        )
    items = [
        folder / name
        for folder, files in found.items()
        for name in files
        if _has_form(name, ITEM_FILES)
    ]
    if items:
        raise AblateError(
            f"{_text(items[0])} has a line for each item of a test set; give a file with"
            " the mean over the items of each run"
        )
