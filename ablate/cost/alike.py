"""Modules of a network that compute the same, so that one of them is enough to count.

A transformer has many blocks, and most of them differ only in their weights. A trace of
a network with `Alike` runs the first of such modules. The others return their input,
and the number of repeats is kept.

What makes this right: two modules are alike only if everything that Python can see of
them is equal (classes, attributes, shapes and types of tensors, and the same of their
children), if they are called with inputs of the same shapes and types, and if their
output has the shape and type of their first input. What is not understood makes a
module unlike any other: it is then traced in full. Rates of dropout and stochastic
depth do not count, because networks are traced in evaluation mode.

What would break it: a forward that depends on the values of weights or inputs, or on
anything that the module does not hold, and a parent that changes its children or reads
what they keep. The families of backbones do none of this, and tests compare every
operator of each of them. Parts of users and other models of timm are traced in full.
"""

from __future__ import annotations

import enum
import types
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import torch
from timm.layers import DropPath
from torch import Tensor, nn

# What is compared apart from the other attributes.
_UNREAD = frozenset(("_modules", "_parameters", "_buffers"))
# Modules that do nothing in evaluation mode, whatever their rate is.
_DROPS = frozenset((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, DropPath))
_LITERALS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, enum.Enum)


class _NotUnderstood(Exception):
    """A value of which we cannot say what it computes."""


class Alike:
    """The repeated modules of a network, while it is traced.

    Attributes:
        repeats: how often a module stands for another one, by the module's name.
        ran_twice: whether one of the modules ran more than once, as on images of two
            sizes. A count by module then does not say what one run costs, so the
            network has to be traced in full.
    """

    def __init__(self, model: nn.Module) -> None:
        self.repeats: Counter[str] = Counter()
        self.ran_twice = False
        self._candidates = _candidates(model)
        self._names: set[str] = set()
        # The modules that ran, by what they are and what they were called with. None if
        # the output was not like the input.
        self._ran: dict[Hashable, str | None] = {}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Makes repeated modules return their input while the block runs."""
        for name, (module, key) in self._candidates.items():
            module.forward = partial(self._forward, name, key, module.forward)
        try:
            yield
        finally:
            for module, _ in self._candidates.values():
                del module.forward

    def times(self, name: str) -> int:
        """Returns how often a submodule counts: once, and for each module like it."""
        for first, number in self.repeats.items():
            if name.startswith(f"{first}."):
                return 1 + number
        return 1

    def _forward(
        self,
        name: str,
        kind: Hashable,
        forward: Callable[..., Any],
        *inputs: Any,
        **named: Any,
    ) -> Any:
        key: Hashable = None
        with suppress(_NotUnderstood):
            key = (kind, _signature(inputs), _signature(named))
        first = self._ran.get(key)
        if first is not None:
            self.repeats[first] += 1
            return inputs[0]
        self.ran_twice |= name in self._names
        self._names.add(name)
        output = forward(*inputs, **named)
        if key is None:
            return output
        if key not in self._ran:
            self._ran[key] = name if _is_like(output, inputs) else None
        return output


def _is_like(output: Any, inputs: tuple[Any, ...]) -> bool:
    """Whether an output can be replaced by the first input."""
    if not inputs or not isinstance(output, Tensor) or output is inputs[0]:
        return False
    return _signature(output) == _signature(inputs[0])


def _candidates(model: nn.Module) -> dict[str, tuple[nn.Module, Hashable]]:
    """Returns the modules in lists that others are like, with what they are, by name.

    None is inside another one.
    """
    owners = Counter(child for module in model.modules() for child in module.children())
    keys: dict[str, Hashable] = {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        for part, child in module.named_children():
            # A part that two modules share would be counted with one of them only.
            if all(owners[module] <= 1 for module in child.modules()):
                keys[f"{name}.{part}" if name else part] = what_it_computes(child)
    number = Counter(key for key in keys.values() if key is not None)
    traced: dict[str, tuple[nn.Module, Hashable]] = {}

    def visit(module: nn.Module, name: str) -> None:
        for part, child in module.named_children():
            inner = f"{name}.{part}" if name else part
            key = keys.get(inner)
            if key is not None and number[key] > 1:
                traced[inner] = child, key
            else:
                visit(child, inner)

    visit(model, "")
    return traced


def what_it_computes(module: nn.Module) -> Hashable | None:
    """Returns a value that is equal for modules that differ in their weights only.

    None if the module has something of which we cannot say what it computes.
    """
    try:
        return _of_module(module)
    except _NotUnderstood:
        return None


def _of_module(module: nn.Module) -> Hashable:
    if isinstance(module, torch.jit.ScriptModule) or "forward" in vars(module):
        raise _NotUnderstood
    is_drop = type(module) in _DROPS
    attributes = []
    for name, value in sorted(vars(module).items()):
        if name in _UNREAD or (is_drop and name in ("p", "drop_prob")):
            continue
        if "_hooks" in name:
            if value:
                # Somebody looks at this module, or changes what it computes.
                raise _NotUnderstood
            continue
        attributes.append((name, _of_value(value)))
    tensors = {**module._parameters, **module._buffers}
    return (
        type(module),
        tuple(attributes),
        tuple((name, _of_value(tensor)) for name, tensor in tensors.items()),
        tuple(
            (name, None if child is None else _of_module(child))
            for name, child in module._modules.items()
        ),
    )


def _of_value(value: Any) -> Hashable:
    """Returns what is equal for equal values.

    Raises _NotUnderstood for a value of unknown kind.
    """
    if isinstance(value, _LITERALS):
        return type(value), value
    if isinstance(value, Tensor):
        return Tensor, tuple(value.shape), value.dtype
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        # The same function, not an equal one.
        return value
    return type(value), _of_parts(value)


def _of_parts(value: Any) -> Hashable:
    """Returns what is equal for collections and records of equal values."""
    if isinstance(value, tuple | list):
        return tuple(_of_value(item) for item in value)
    if isinstance(value, set | frozenset):
        return frozenset(_of_value(item) for item in value)
    if isinstance(value, Mapping):
        return tuple((_of_value(key), _of_value(item)) for key, item in value.items())
    if isinstance(value, partial):
        return _of_value((value.func, value.args, value.keywords))
    if is_dataclass(value):
        return tuple(_of_value(getattr(value, field.name)) for field in fields(value))
    raise _NotUnderstood


def _signature(value: Any) -> Hashable:
    """Returns the shapes and types of what a module receives or returns."""
    if isinstance(value, Tensor):
        # While torch traces, sizes are tensors, and numbers from sizes are too.
        sizes = tuple(int(size) for size in value.shape)
        if not sizes and not value.is_floating_point():
            return Tensor, value.dtype, value.item()
        return Tensor, sizes, tuple(value.stride()), value.dtype
    if isinstance(value, tuple | list):
        return type(value), tuple(_signature(item) for item in value)
    if isinstance(value, dict):
        return dict, tuple((key, _signature(item)) for key, item in value.items())
    return _of_value(value)
