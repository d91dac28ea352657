"""Writes a space to start from: a commented one, or a copy of an example."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from ablate.cli.shipped import shipped
from ablate.errors import AblateError, UnknownName, unknown
from ablate.report.table import Table, plain
from ablate.space.load import study_name
from ablate.text.document import parse

# The commented space. Its commands and its study are those of a file of this name.
TEMPLATE = Path(__file__).with_name("space.yaml")
SUFFIXES = (".yaml", ".yml")


def examples() -> Mapping[str, Path]:
    """The files of the shipped examples by name, as `augvit/table3-small`, in
    alphabetical order.
    """
    folder = shipped("ablate_examples", "search_spaces")
    files = sorted(folder.rglob("*.yaml"))
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in files}


def examples_table() -> Table:
    """The examples with their questions and data sets."""
    data = []
    for name, file in examples().items():
        values = parse(file.read_text(encoding="utf-8"), str(file)).values
        images = values.get("data", "digits")
        set_name = images["name"] if isinstance(images, dict) else images
        data.append({"example": name, "data": set_name, "question": values["question"]})
    return plain(data)


def write(name: str, example: str) -> Path:
    """Writes a new space and returns its file.

    Args:
        name: the file, with or without its ending; empty: that of the example, or
            `space`.
        example: name of an example; empty: the commented space.

    Raises:
        UnknownName: there is no such example; the message lists all of them.
        AblateError: the file is there already, or its folder is not.
    """
    source = _find(example) if example else TEMPLATE
    file = Path(name or source.name)
    if file.suffix not in SUFFIXES:
        if file.name:
            file = file.with_name(f"{file.name}.yaml")
        else:
            # A path such as `.` has no name.
            file = Path(source.name)
    text = _renamed(source.read_text(encoding="utf-8"), example, file)
    command = ["ablate", "init", *(["--example", example] if example else [])]
    _create(file, text, shlex.join([*command, str(file.with_name(f"{file.stem}-2"))]))
    return file


def _find(example: str) -> Path:
    examples_by_name = examples()
    if example in examples_by_name:
        return examples_by_name[example]
    listed = [f"  {row[0]}: {row[2]}" for row in examples_table().rows]
    message = unknown("example", example, examples_by_name).partition("; known:")[0]
    raise UnknownName("\n".join([message, "The examples are:", *listed]))


def _renamed(text: str, example: str, file: Path) -> str:
    """The text, with the new file and the new study in the commands of its comments."""
    old_file = f"search_spaces/{example}.yaml" if example else TEMPLATE.name
    old_study = example or TEMPLATE.stem
    text = text.replace(old_file, shlex.quote(str(file)))
    # `ablate verify-costs` names a published table, which keeps its name.
    return re.sub(
        rf"(\bablate \w+ ){re.escape(old_study)}(?=\s)",
        rf"\g<1>{study_name(str(file))}",
        text,
    )


def _create(file: Path, text: str, otherwise: str) -> None:
    """Writes a file that is not there yet; `otherwise` is the command that writes
    another one.
    """
    if not file.parent.is_dir():
        raise AblateError(
            f"there is no folder {file.parent}; create it: mkdir -p {file.parent}"
        )
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise AblateError(
            f"{file} already exists and was not changed; choose another name, such as:"
            f" {otherwise}"
        ) from None
