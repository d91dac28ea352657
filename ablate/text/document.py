"""Parses YAML text to plain values and records the line of each.

YAML 1.2: only `true` and `false` are booleans, and `1e-3` is a number. No content can
run code: libyaml parses the text to events, PyYAML's composer makes nodes of them, and
this module makes plain values of the nodes. Tags are refused. A document that is too
large is refused at the point where it exceeds a limit, before the rest is read.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer

from ablate.errors import Problem, SpaceError, shortened, unknown

Where = tuple[str | int, ...]

# The largest document in bytes. The largest space of the five papers has 2 kB; a
# document beyond this limit was not meant to be a space.
MOST_BYTES = 1_000_000
# The most values of a document. The values of an alias count at each of its uses, so
# that a few lines cannot expand to gigabytes.
MOST_VALUES = 20_000
# The deepest nesting. A space has four levels.
MOST_DEPTH = 30
# The largest integer that every database can store.
MOST_INTEGER = 2**63 - 1


class _Yaml12(Composer, yaml.CBaseLoader):
    """Nodes from libyaml's events, with the scalars of YAML 1.2's core schema.

    It refuses more nodes than a document may have. libyaml is ten times faster than
    PyYAML's own parser.
    """

    # Empty: PyYAML's own table is for YAML 1.1, where `on` and `no` are booleans.
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        yaml.CBaseLoader.__init__(self, text)
        Composer.__init__(self)
        self._depth = self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Returns the next node with its children."""
        # Checked while composing: the recursion of PyYAML would otherwise overflow the
        # stack on a deeply nested document, before any value is read.
        self._depth = self._depth + 1
        self._nodes = self._nodes + 1
        if self._depth > MOST_DEPTH:
            raise TooLarge(self._line(), _too_deep())
        # A mapping has twice as many nodes as values.
        if self._nodes > 2 * MOST_VALUES:
            raise TooLarge(self._line(), _too_many())
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _line(self) -> int:
        mark = getattr(self.peek_event(), "start_mark", None)
        if mark is None:
            return 1
        return int(mark.line) + 1


class TooLarge(Exception):
    """A document exceeds a limit, with the line and the message."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line, self.text = line, text


def _too_deep() -> str:
    return (
        f"the document is nested deeper than {MOST_DEPTH} levels, or refers to itself"
    )


def _too_many() -> str:
    return (
        f"the document is too large: it has more than {MOST_VALUES:,} values, or refers"
        " to itself"
    )


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _Yaml12.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first
    )


@dataclass
class Document:
    """A parsed document: its values, and their lines by place.

    A place is a tuple such as `("factors", "drop.path", 1)`.
    """

    file: str
    text: str
    values: dict[str, Any]
    lines: dict[Where, int] = field(default_factory=dict)

    def line(self, where: Where) -> int:
        """Returns the line of a value, or of the nearest value around it."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where, 1)

    def problem(self, where: Where, text: str | Callable[[], str]) -> Problem:
        return Problem(self.file, self.line(where), text)


def read_text(path: Path) -> str:
    """Returns the text of a document's file.

    Raises:
        SpaceError: the file cannot be read, is not a regular file, is larger than a
            document may be, or is not UTF-8 text.
    """
    try:
        if not str(path).isprintable():
            raise _refused(
                str(path),
                0,
                "the file's name has characters that are no text; rename it",
            )
        # Opening a FIFO would wait for a writer, and a device may never end.
        if path.exists() and not path.is_file():
            raise _refused(
                str(path),
                0,
                "cannot be read: it is not a regular file; save the space to a file,"
                " and give the path of this file",
            )
        with path.open("rb") as stream:
            # One byte more than allowed shows that a file is too large, without reading
            # it all.
            content = stream.read(MOST_BYTES + 1)
        text = "" if len(content) > MOST_BYTES else content.decode()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError):
            reason = error.strerror
        else:
            reason = "it is not UTF-8 text"
        hint = ""
        # A name may be too long for a file.
        with contextlib.suppress(OSError, ValueError):
            near = path.with_name(f"{path.name}.yaml")
            hint = f"; did you mean {near}?" if near.is_file() else ""
        raise _refused(str(path), 0, f"cannot be read: {reason}{hint}") from None
    if len(content) > MOST_BYTES:
        raise _refused(str(path), 0, _too_long())
    # Every kind of line ending becomes a line feed, as when Python reads a text file.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _refused(file: str, line: int, text: str) -> SpaceError:
    return SpaceError([Problem(file, line, text)])


def _too_long() -> str:
    return (
        f"the document is larger than {MOST_BYTES:,} bytes; a space is a page of text,"
        " and images and weights are files beside it"
    )


def parse(text: str, file: str) -> Document:
    """Parses one YAML document.

    Raises:
        SpaceError: it is not one mapping of YAML 1.2 with plain values, or is far too
            large.
    """

    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise _refused(file, 1, _too_long())
    try:
        root = node_of(text)
    except TooLarge as error:
        raise _refused(file, error.line, error.text) from None
    except yaml.MarkedYAMLError as error:
        # An unclosed bracket or quote is detected at the end of the document, but the
        # mistake is where it was opened.
        unclosed = error.context_mark is not None and any(
            word in str(error.context) for word in ("flow", "quoted")
        )
        if unclosed:
            mark = error.context_mark
        else:
            mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise _refused(
            file, mark.line + 1 if mark else 1, f"not valid YAML: {what}"
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.encode("utf-8", "replace")[: error.position].count(b"\n") + 1
        raise _refused(file, line, f"not valid YAML: {error.reason}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise _refused(
            file, 1, f"not valid YAML: {' '.join(str(error).split())}"
        ) from None
    if root is None or (
        isinstance(root, yaml.ScalarNode)
        and not root.value
        and root.style not in ('"', "'")
    ):
        raise _refused(
            file,
            1,
            "the document is empty; a space needs at least question, factors, and a"
            " backbone or a trainer",
        )
    if not isinstance(root, yaml.MappingNode):
        raise _refused(
            file,
            root.start_mark.line + 1,
            "a space is a mapping of keys to values, as in `question: ...`",
        )
    document = Document(file, text, {})
    document.values = _Reader(document).read(root, ())
    return document


def node_of(text: str) -> yaml.Node | None:
    """Returns the one node of a text, which may have any tags.

    Raises:
        YAMLError: it is no YAML.
        TooLarge: it has too many values, or is nested too deeply.
    """
    loader = _Yaml12(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


class _Reader:
    """Turns nodes into plain values."""

    def __init__(self, document: Document) -> None:
        self._document, self._values = document, 0

    def read(self, node: yaml.Node, where: Where) -> Any:
        line = node.start_mark.line + 1
        self._document.lines.setdefault(where, line)
        # The composer returns the same node for each alias of it. Counting here, at
        # each use, also stops a node that contains itself.
        self._values += 1
        if len(where) > MOST_DEPTH:
            raise self._refused(line, _too_deep())
        if self._values > MOST_VALUES:
            raise self._refused(line, _too_many())
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return self._mapping(node, where)
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [
                self.read(item, (*where, index))
                for index, item in enumerate(node.value)
            ]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, line)
        raise self._refused(line, f"the tag {shortened(node.tag)} is not allowed")

    def _refused(self, line: int, text: str) -> SpaceError:
        return _refused(self._document.file, line, text)

    def _mapping(self, node: yaml.MappingNode, where: Where) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._key(key_node, line)
            if key in values:
                raise self._refused(line, f"the key '{shortened(key)}' is a duplicate")
            self._document.lines[(*where, key)] = line
            values[key] = self.read(value_node, (*where, key))
        return values

    def _key(self, node: yaml.Node, line: int) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._refused(
                line, f"a key must be text, found a {getattr(node, 'id', 'node')}"
            )
        key = self._scalar(node, line)
        if not isinstance(key, str):
            raise self._refused(
                line,
                f"a key must be text, found {shortened(node.value)!r}; put it in"
                " quotes",
            )
        return key

    def _scalar(self, node: yaml.ScalarNode, line: int) -> Any:
        tag = node.tag.rpartition(":")[2]
        text = str(node.value)
        if not node.tag.startswith("tag:yaml.org,2002:") or tag not in (
            "null",
            "bool",
            "int",
            "float",
            "str",
        ):
            raise self._refused(line, f"the tag {shortened(node.tag)} is not allowed")
        try:
            return _plain(tag, text)
        except (ValueError, KeyError) as error:
            if isinstance(error, _Refused):
                reason = error.args[0]
            else:
                reason = f"is not a finite {FINITE[tag]}"
            raise self._refused(line, f"'{shortened(text)}' {reason}") from None


# Kinds of numbers in messages.
FINITE = {"int": "integer", "float": "number", "bool": "truth value"}


class _Refused(ValueError):
    """A scalar of a known type that is not accepted, and why."""


def _plain(tag: str, text: str) -> bool | int | float | str | None:
    if tag == "null":
        return None
    if tag == "bool":
        return {"true": True, "false": False}[text.lower()]
    if tag == "int":
        return _integer(text)
    if tag == "float":
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(text)
        return number
    if "\0" in text:
        raise _Refused(
            "holds the character NUL, which databases and file names do not take; leave"
            " it out"
        )
    return text


def _integer(text: str) -> int:
    # Python needs quadratic time to parse digits, so they are counted first.
    digits = text.lstrip("-+").lstrip("0") or "0"
    if len(digits) > len(str(MOST_INTEGER)) or int(digits) > MOST_INTEGER:
        raise _Refused(f"is beyond 64 bits; whole numbers go up to {MOST_INTEGER:,}")
    if text.startswith("-"):
        return -int(digits)
    return int(digits)


# What other tools call a key: timm's arguments first.
_ELSEWHERE = {
    "aa": "rand_augment",
    "auto_augment": "rand_augment",
    "aug_repeats": "repeats",
    "bce_loss": "loss",
    "bce_target_thresh": "loss_threshold",
    "betas": "beta1",
    "clip_grad_norm": "clip_grad",
    "cooldown_epochs": "schedule_options",
    "decay_epochs": "schedule_options",
    "decay_rate": "schedule_options",
    "drop_path": "factors",
    "grad_accum_steps": "accumulate",
    "gradient_clip_val": "clip_grad",
    "grad_checkpointing": "checkpointing",
    "hflip": "flip",
    "init_lr": "lr",
    "jsd_loss": "loss",
    "lr_base": "lr",
    "lr_cycle_decay": "schedule_options",
    "lr_cycle_limit": "schedule_options",
    "lr_cycle_mul": "schedule_options",
    "lr_k_decay": "schedule_options",
    "lr_noise": "schedule_options",
    "max_grad_norm": "clip_grad",
    "model_ema": "ema",
    "model_ema_decay": "ema",
    "model_ema_warmup": "ema_warmup",
    "opt": "optimizer",
    "opt_betas": "beta1",
    "opt_eps": "eps",
    "opt_kwargs": "optimizer_options",
    "patience_epochs": "schedule_options",
    "ratio": "crop_ratio",
    "recount": "random_erasing",
    "remode": "random_erasing",
    "reprob": "random_erasing",
    "resplit": "random_erasing",
    "scale": "crop_scale",
    "sched": "schedule",
    "sched_kwargs": "schedule_options",
    "smoothing": "label_smoothing",
    "train_interpolation": "interpolation",
    "train_crop_mode": "augmentation",
    "warmup_lr_init": "warmup_lr",
    "warmup_prefix": "schedule_options",
    "augmentation": "rand_augment",
    "batch": "batch_size",
    "bs": "batch_size",
    "dataset": "data",
    "early_stopping": "scheduler",
    "gradient_accumulation_steps": "accumulate",
    "grid": "factors",
    "hyperparameters": "factors",
    "learning_rate": "lr",
    "lr_scheduler": "schedule",
    "max_epochs": "epochs",
    "model": "backbone",
    "n_epochs": "epochs",
    "num_epochs": "epochs",
    "optim": "optimizer",
    "parameters": "factors",
    "params": "factors",
    "sampler": "strategy",
    "search": "strategy",
    "search_space": "factors",
    "seed": "seeds",
    "warmup": "warmup_epochs",
    "wd": "weight_decay",
}


def unknown_key(key: str, keys: list[str]) -> str:
    """Returns the message for a key that a mapping does not have."""
    ours = _ELSEWHERE.get(key.lower().lstrip("-").replace("-", "_"))
    if ours in keys:
        return f"unknown key '{shortened(key)}'; did you mean '{ours}'?"
    return unknown("key", key, keys)
