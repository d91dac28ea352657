"""Checkpoints that a space names under `pretrained` or as its teacher's weights, and
that are none.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from tests.attack.case import PLAN, SPACE, Case, Content
from tests.attack.cases_data import fifo, loop
from tests.attack.cases_documents import added

FILE = "weights.pth"
UNSAFE = f"{FILE} is no checkpoint that can be read safely"
NAMELESS = f"{FILE} holds no tensors by name"
DENSE = "weights must be dense tensors of real numbers"
STRANGE = f"{FILE} is of another network"
WIDTH = 16


class Runs:
    """What would run a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch ran",)


def saved(what: object, *, old: bool = False) -> bytes:
    """What torch saves of it; in the format before 1.6 if `old`."""
    stream = io.BytesIO()
    torch.save(what, stream, _use_new_zipfile_serialization=not old)
    return stream.getvalue()


def bomb(path: Path) -> None:
    """A checkpoint of a few kilobytes that unpacks to sixty megabytes."""
    content = saved({"a": torch.zeros(1)})
    with (
        zipfile.ZipFile(io.BytesIO(content)) as source,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for member in source.infolist():
            with archive.open(member.filename, "w") as stream:
                stream.write(source.read(member))
                for _ in range(60 if "/data/" in member.filename else 0):
                    stream.write(bytes(10**6))


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A file in safetensors' format whose header says what it likes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def files() -> Iterator[tuple[str, Content, str]]:
    """What is no checkpoint at all."""
    good = saved({"a": torch.zeros(3)})
    flipped = bytearray(good)
    flipped[good.index(b"PK\x01\x02") + 30] ^= 0xFF
    yield "empty", b"", UNSAFE
    yield "text", b"hello\n", UNSAFE
    yield "zeros", bytes(10_000), UNSAFE
    yield "cut in half", good[: len(good) // 2], UNSAFE
    yield "with a flipped bit", bytes(flipped), UNSAFE
    yield "an empty zip", b"PK\x05\x06" + bytes(18), UNSAFE
    yield "a zip of text", zipped("hello"), UNSAFE
    yield "a pickle of a list", pickle.dumps([1, 2]), FILE
    yield "a pickle that runs code", pickle.dumps(Runs()), UNSAFE
    yield "torch's file that runs code", saved(Runs()), UNSAFE
    yield "torch's old file that runs code", saved(Runs(), old=True), UNSAFE
    yield "a whole module", saved(torch.nn.Linear(2, 2)), UNSAFE
    yield "an old file, cut", saved({"a": torch.zeros(3)}, old=True)[:-4], UNSAFE
    yield "a thousand opened lists", b"\x80\x02" + b"]" * 1000 + b".", FILE
    yield (
        "a pickle of 2^31 bytes that are missing",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"x.",
        UNSAFE,
    )
    yield "a zip bomb", bomb, "would unpack to"


def zipped(text: str) -> bytes:
    """A zip archive of one text."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data.pkl", text)
    return stream.getvalue()


def contents() -> Iterator[tuple[str, object, str]]:
    """What torch reads safely and is no weights by name."""
    tensor = torch.zeros(3)
    yield "a list of tensors", [tensor], f"{FILE} holds a list"
    yield "a tuple", (tensor,), f"{FILE} holds a tuple"
    yield "one tensor", tensor, f"{FILE} holds a Tensor"
    yield "a number", 3, f"{FILE} holds a int"
    yield "text", "weights", f"{FILE} holds a str"
    yield "null", None, f"{FILE} holds a NoneType"
    yield "a set", {1, 2}, FILE
    yield "an empty mapping", {}, NAMELESS
    yield "numbers for names", {0: tensor, 1: tensor}, NAMELESS
    yield "tuples for names", {("a", 1): tensor}, NAMELESS
    yield "null for a name", {None: tensor}, NAMELESS
    yield "numbers for tensors", {"a": 1, "b": 2.0}, NAMELESS
    yield "a model that is a list", {"model": [tensor]}, NAMELESS
    yield "a model that is empty", {"model": {}}, NAMELESS
    yield "a model with numbers for names", {"model": {0: tensor}}, NAMELESS
    yield (
        "a model within a model",
        {"model": {"model": {"model": {"a": tensor}}}},
        NAMELESS,
    )
    yield (
        "an optimiser's state",
        {"optimizer": {"state": {0: {"exp_avg": tensor}}, "param_groups": []}},
        NAMELESS,
    )
    yield "sparse tensors", {"a": torch.eye(3).to_sparse()}, DENSE
    yield "complex numbers", {"a": torch.zeros(3, dtype=torch.complex64)}, DENSE
    yield "a tensor without data", {"a": torch.zeros(3, device="meta")}, DENSE
    yield (
        "a million million values of one",
        {"a": torch.zeros(1).expand(10**12)},
        "has the shape [1000000000000]",
    )
    yield (
        "a position embedding of one value",
        {"pos_embed": torch.zeros(1, 1, 1).expand(1, 10**8, WIDTH)},
        "has the shape",
    )
    yield (
        "names of another network",
        {f"layer{number}": tensor for number in range(500)},
        STRANGE,
    )
    yield "an empty name", {"": tensor}, STRANGE
    yield (
        "a name of 100,000 characters",
        {"x" * 100_000: tensor},
        "no cell of space can be trained",
    )
    yield (
        "10,000 names",
        {f"module.layer{number}": tensor for number in range(10_000)},
        STRANGE,
    )


def shapes() -> Iterator[tuple[str, object, str]]:
    """Tensors in the network's names, of shapes and types that no resampling takes."""
    for name, tensor in {
        "pos_embed of nothing": torch.zeros(1, 0, WIDTH),
        "pos_embed of no width": torch.zeros(1, 5, 0),
        "pos_embed of five images": torch.zeros(5, 17, WIDTH),
        "pos_embed of one token": torch.zeros(1, 1, WIDTH),
        "pos_embed of no square": torch.zeros(1, 14, WIDTH),
        "pos_embed of whole numbers": torch.zeros(1, 17, WIDTH, dtype=torch.int64),
        "pos_embed of bytes": torch.zeros(1, 17, WIDTH, dtype=torch.uint8),
        "pos_embed of truths": torch.zeros(1, 17, WIDTH, dtype=torch.bool),
        "pos_embed of half numbers": torch.zeros(1, 17, WIDTH, dtype=torch.float16),
        "pos_embed of NaN": torch.full((1, 17, WIDTH), torch.nan),
        "patch_embed.proj.weight of nothing": torch.zeros(WIDTH, 1, 0, 0),
        "patch_embed.proj.weight of one pixel": torch.zeros(WIDTH, 1, 1, 1),
        "patch_embed.proj.weight that is oblong": torch.zeros(WIDTH, 1, 1, 16),
        "patch_embed.proj.weight of bytes": torch.zeros(
            WIDTH, 1, 8, 8, dtype=torch.uint8
        ),
        "patch_embed.proj.weight of 8-bit floats": (
            torch.zeros(WIDTH, 1, 8, 8).to(torch.float8_e5m2)
        ),
        "cls_token of many dimensions": torch.zeros(*([1] * 20), WIDTH),
        "cls_token of none": torch.zeros(()),
    }.items():
        yield name, {name.partition(" ")[0]: tensor}, STRANGE


def safe() -> Iterator[tuple[str, bytes, str]]:
    """Files in safetensors' format."""
    file = "weights.safetensors"
    unsafe = f"{file} is no checkpoint that can be read safely"
    entry = {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}
    yield "empty", b"", unsafe
    yield "text", b"hello, world", unsafe
    yield "torch's", saved({"a": torch.zeros(3)}), unsafe
    yield "a header of 2^63 bytes", safetensors({}, length=2**63), unsafe
    yield "a header longer than the file", safetensors({}, length=1000), unsafe
    yield "a header that is no JSON", safetensors(b"{'a': 1}"), unsafe
    yield "a header that is a list", safetensors([]), unsafe
    yield "a header of a hundred thousand brackets", safetensors(b"[" * 100_000), unsafe
    yield "no tensors", safetensors({}), f"{file} holds no tensors"
    yield "less data than it says", safetensors({"a": entry}, bytes(8)), unsafe
    yield "more data than it says", safetensors({"a": entry}, bytes(16)), unsafe
    yield (
        "10^12 values",
        safetensors({"a": {**entry, "shape": [10**12]}}, bytes(12)),
        unsafe,
    )
    yield (
        "offsets that go back",
        safetensors({"a": {**entry, "data_offsets": [12, 0]}}, bytes(12)),
        unsafe,
    )
    yield (
        "a shape below zero",
        safetensors({"a": {**entry, "shape": [-3]}}, bytes(12)),
        unsafe,
    )
    yield (
        "a type that is none",
        safetensors({"a": {**entry, "dtype": "F3"}}, bytes(12)),
        unsafe,
    )
    yield (
        "tensors that overlap",
        safetensors({"a": entry, "b": entry}, bytes(12)),
        unsafe,
    )
    yield (
        "of another network",
        safetensors({"a": entry}, bytes(12)),
        f"{file} is of another network",
    )


def cases(what: str, text: str, names: Iterable[str]) -> Iterator[Case]:
    """A space that takes weights from each of the files.

    Args:
        what: the key that names the file, `pretrained` or `teacher`.
        text: the space, which names FILE.
        names: other names in its place.
    """

    def case(name: str, says: str, content: Content, said: str = FILE) -> Case:
        return Case(
            name=f"{what} {name}",
            says=says.replace("pretrained", what),
            argv=PLAN,
            files={SPACE: text.replace(FILE, said), FILE: content},
        )

    for name, content, says in files():
        yield case(name, says, content)
    for name, holds, says in (*contents(), *shapes()):
        yield case(f"with {name}", says, saved(holds))
    missing = f"{SPACE}:9: pretrained: no file"
    for name, place in (
        ("a folder", Path.mkdir),
        ("a FIFO", fifo),
        ("a link to itself", loop),
    ):
        yield case(f"is {name}", missing, place)
    for said in names:
        yield case(f"names {said[:30]}", missing, "", f"'{said}'")


def more() -> Iterator[Case]:
    """Files of older and of other kinds."""
    for name, what in (
        ("a list", [torch.zeros(3)]),
        ("numbers for names", {0: torch.zeros(3)}),
    ):
        yield Case(
            name=f"pretrained, old, with {name}",
            says=FILE,
            argv=PLAN,
            files={SPACE: PRETRAINED, FILE: saved(what, old=True)},
        )
    for name, safe_content, says in safe():
        files_of = {
            SPACE: added("pretrained: weights.safetensors"),
            "weights.safetensors": safe_content,
        }
        yield Case(name=f"safetensors: {name}", says=says, argv=PLAN, files=files_of)


PRETRAINED = added(f"pretrained: {FILE}")
TEACHER = added(
    "teacher: {backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2},"
    f" weights: {FILE}}}"
).replace("recipe: {", "recipe: {distillation: hard, ")
ELSEWHERE = ("/dev/zero", "https://example.org/weights.pth", "x" * 5000)
CASES = [
    *cases("pretrained", PRETRAINED, (*ELSEWHERE, "/dev/random", "  ", ".")),
    *cases("teacher", TEACHER, ELSEWHERE),
    *more(),
]
