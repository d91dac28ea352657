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


def edit(values: Values, network: nn.Module, image: Tensor) -> list[str]:
    names = parts_of(network, str(values["remove"]))
    _refuse_identities(network, names)
    calls: dict[str, list[_Call]] = {name: [] for name in names}
    handles = [
        network.get_submodule(name).register_forward_hook(_recorder(calls[name]))
        for name in names
    ]
    whole = _run(network, image)
    for handle in handles:
        handle.remove()
    becomes = str(values["becomes"])
    for name in names:
        network.set_submodule(name, _instead(name, becomes, calls[name]))
    try:
        rest = _run(network, image)
    except Exception as error:
        raise Infeasible(
            f"without {', '.join(names)} the network does not run:"
            f" {type(error).__name__}: {error}"
        ) from error
    if _shape(rest) != _shape(whole):
        raise Infeasible(
            f"without {', '.join(names)} the network returns {_text(_shape(rest))}"
            f" instead of {_text(_shape(whole))}"
        )
    return names


def _run(network: nn.Module, image: Tensor) -> Any:
    """Returns what a network makes of an image when it does not train."""
    import torch

    was_training = network.training
    try:
        # With gradients: without them, torch's own layers do not call their parts.
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            return network.eval()(image)
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
        if call.given[0] != call.returned[0]:
            raise Infeasible(
                f"{name} cannot be removed: {maps}, which does not keep the batch"
            )
    first = calls[0]
    assert first.returned is not None
    if becomes == "identity":
        return Removed(None, first.others)
    if any(call.returned != first.returned for call in calls):
        raise Infeasible(f"{name} cannot become zeros: its outputs differ in shape")
    return Removed(first.returned[1:], first.others)


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
