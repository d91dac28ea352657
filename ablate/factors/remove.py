"""Parts of a network, removed by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ablate.errors import Infeasible, did_you_mean, shortened
from ablate.factors.factor import Factor, OneOf, Parameter, PartNames, Values

if TYPE_CHECKING:
    from torch import Tensor, nn

# What nothing removed is called.
NONE = "none"
# Images in a batch with which a network is tried.
BATCHES = (2, 3)
# A level that stands for one level per part: `each blocks.*.mlp`.
EACH = "each "


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Returns the names that a pattern fits, in their order.

    `*` stands for any text without a dot, and `**` for any number of names between dots.
    """
    parts = pattern.split(".")
    return [name for name in names if name and _fits(parts, name.split("."))]


def _fits(pattern: list[str], name: list[str]) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_fits(pattern[1:], name[start:]) for start in range(len(name) + 1))
    if not name or not fnmatchcase(name[0], pattern[0]):
        return False
    return _fits(pattern[1:], name[1:])


def parts_of(network: nn.Module, patterns: str) -> list[str]:
    """Returns the names of the modules that patterns with commas between them fit.

    What lies inside of another one of them is left out.

    Raises:
        Infeasible: a pattern fits no module.
    """
    # A module may have two names.
    names = [name for name, _ in network.named_modules(remove_duplicate=False)]
    fitting: dict[str, None] = {}
    for pattern in patterns.split(","):
        matched = matching(pattern.strip(), names)
        if not matched:
            hint = did_you_mean(pattern.strip(), names)
            top = ", ".join(name for name, _ in network.named_children())
            raise Infeasible(
                f"the network has no part '{shortened(pattern.strip())}'"
                f"{hint or '; its parts are ' + top + ', and what is inside of them'}"
            )
        fitting |= dict.fromkeys(matched)
    return [
        name
        for name in fitting
        if not any(name.startswith(f"{other}.") for other in fitting)
    ]


def _refuse_identities(network: nn.Module, names: list[str]) -> None:
    """Raises Infeasible if no part does anything."""
    from torch import nn

    if all(isinstance(network.get_submodule(name), nn.Identity) for name in names):
        raise Infeasible(
            f"removing {names[0]} would change nothing: it is the identity already"
        )


@dataclass(frozen=True)
class _Call:
    """The shapes of a module's first argument and of what it returned.

    A shape is None if there is no tensor. `others` counts what stands behind the tensor
    in a tuple; it is None if the module returned no tuple.
    """

    given: tuple[int, ...] | None
    returned: tuple[int, ...] | None
    others: int | None


def edit(
    values: Values, network: nn.Module, images: Callable[[int], Tensor]
) -> list[str]:
    names = parts_of(network, str(values["remove"]))
    _refuse_identities(network, names)
    calls: dict[str, list[_Call]] = {name: [] for name in names}
    handles = [
        network.get_submodule(name).register_forward_hook(_recorder(calls[name]))
        for name in names
    ]
    try:
        # Two sizes of a batch show which dimension of a shape is the batch.
        whole = [_shape(_run(network, images(batch))) for batch in BATCHES]
    except Exception as error:
        # A user's network raises its own type of error.
        raise Infeasible(
            f"the network does not run on {BATCHES[0]} and {BATCHES[1]} images of zeros:"
            f" {type(error).__name__}: {error}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    becomes = str(values["becomes"])
    for name in names:
        network.set_submodule(name, _instead(name, becomes, calls[name]))
    for batch, shape in zip(BATCHES, whole, strict=True):
        try:
            rest = _shape(_run(network, images(batch)))
        except Exception as error:
            raise Infeasible(
                f"without {', '.join(names)} the network does not run:"
                f" {type(error).__name__}: {error}"
            ) from error
        if rest != shape:
            raise Infeasible(
                f"without {', '.join(names)} the network returns {_text(rest)}"
                f" instead of {_text(shape)}"
            )
    return names


def _run(network: nn.Module, images: Tensor) -> Any:
    """Returns what a network makes of images when it does not train."""
    import torch

    was_training = network.training
    try:
        # With gradients: without them, torch's own layers do not call their parts.
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            return network.eval()(images)
    finally:
        network.train(was_training)


def _recorder(calls: list[_Call]) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
    def record(module: nn.Module, given: tuple[Any, ...], returned: Any) -> None:
        others = None
        if isinstance(returned, tuple) and returned:
            others = len(returned) - 1
            returned = returned[0]
        calls.append(
            _Call(_shape(given[0] if given else None), _shape(returned), others)
        )

    return record


def _shape(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if hasattr(value, "shape") else None


def _instead(name: str, becomes: str, calls: list[_Call]) -> nn.Module:
    """Returns the module that takes the place of a part.

    Raises Infeasible if the shapes do not allow it.
    """
    from ablate.layers.removed import Removed

    if not calls:
        raise Infeasible(
            f"{name} cannot be removed: the network does not call it as a module"
        )
    for call in calls:
        maps = f"it maps {_text(call.given)} to {_text(call.returned)}"
        if call.given is None or call.returned is None:
            raise Infeasible(f"{name} cannot be removed: {maps}")
        if becomes == "identity" and call.given != call.returned:
            raise Infeasible(
                f"{name} cannot be removed: {maps}, so the identity does not fit; write"
                " remove.becomes: zeros, or remove what changes the shape back, too"
            )
    if becomes == "identity":
        return Removed(None, calls[0].others)
    return Removed(_zeros(name, calls), calls[0].others)


def _zeros(name: str, calls: list[_Call]) -> tuple[int | str, ...]:
    """The shape of what a module returned, with the batch in words.

    A length is a number, or `input N` if it is that of the input's dimension N.

    Raises Infeasible if the shapes do not say it.
    """
    # The calls with the smaller batch come first.
    half = len(calls) // 2
    small, large = calls[:half], calls[half:]
    shapes = set[tuple[int | str, ...]]()
    for first, second in zip(small, large, strict=True):
        shapes.add(_shape_by_input(name, first, second))
    if len(shapes) > 1:
        raise Infeasible(f"{name} cannot become zeros: its outputs differ in shape")
    return shapes.pop()


def _shape_by_input(name: str, small: _Call, large: _Call) -> tuple[int | str, ...]:
    assert small.given is not None
    assert large.given is not None
    assert small.returned is not None
    assert large.returned is not None
    shape: list[int | str] = []
    inputs = list(zip(small.given, large.given, strict=True))
    for lengths in zip(small.returned, large.returned, strict=True):
        if lengths[0] == lengths[1]:
            shape.append(lengths[0])
            continue
        if lengths not in inputs:
            raise Infeasible(
                f"{name} cannot become zeros: it maps {_text(small.given)} to"
                f" {_text(small.returned)}, which does not keep the batch"
            )
        shape.append(f"input {inputs.index(lengths)}")
    return tuple(shape)


def _text(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "no tensor"
    return " x ".join(map(str, shape[1:])) or "a number"


FACTOR = Factor(
    name="remove",
    source="ablate; any module of any network, by its name in PyTorch",
    claim="What a network loses without a part is what the part is worth.",
    neutral=lambda values: values["remove"] == NONE,
    remove_parts=edit,
    parameters=(
        Parameter(
            name="remove",
            allowed=PartNames(),
            default=NONE,
            about="names of modules, with commas between them: blocks.3.attn; `*` stands"
            " for any text without a dot, `**` for any names; `each PATTERN` stands for"
            " one level per module",
            typical=("blocks.0.norm2, blocks.0.mlp", "blocks.*.attn"),
        ),
        Parameter(
            name="becomes",
            allowed=OneOf(("identity", "zeros")),
            default="identity",
            about="what takes the place of a removed module: the identity, or zeros,"
            " which remove a branch that is added to a shortcut",
            typical=("zeros",),
            read=lambda values: values["remove"] != NONE,
            when="remove names a part",
        ),
    ),
)
