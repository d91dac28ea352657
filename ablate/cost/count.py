"""Counts parameters, FLOPs and activations of a network, from one traced image."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ablate import families, heads
from ablate.cost.alike import Alike
from ablate.cost.rules import Handle, handles
from ablate.errors import Infeasible, UncountedOperator
from ablate.layers.circulant import CirculantProjection
from ablate.models import build
from ablate.own import mistakes
from ablate.parts import trainer_named
from ablate.records import UNCOUNTED, Architecture, Cost
from ablate.text.advice import option

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    warnings.simplefilter("ignore", DeprecationWarning)
    from fvcore.nn.jit_analysis import JitModelAnalysis


# torch's tracer and Python's warning filters are global to the process, so two threads
# must not trace at once.
_ONE_AT_A_TIME = threading.Lock()
# The costs of networks without drop rates, by their hashes.
_undropped: dict[str, Cost] = {}


def count(architecture: Architecture) -> Cost:
    """Returns the cost of an architecture, traced with one image on the CPU.

    Raises:
        Infeasible: the architecture cannot be built.
        UncountedOperator: an operator of the network has no rule.
    """
    if architecture.trainer:
        return _own_cost(architecture)
    undropped = without_drop(architecture)
    if undropped != architecture and _is_known(architecture):
        # Nothing is dropped in evaluation. That the network can be built is all there is
        # to find out.
        parameters(architecture)
        if undropped.hash not in _undropped:
            _undropped[undropped.hash] = count(undropped)
        return _undropped[undropped.hash]
    model, image = model_and_image(architecture)
    return cost_of(model, image, share=_is_known(architecture))


def without_drop(architecture: Architecture) -> Architecture:
    """Returns an architecture without its drop rates."""
    settings = {
        name: level
        for name, level in architecture.settings.items()
        if not name.startswith("drop.")
    }
    return replace(architecture, settings=settings)


def _is_known(architecture: Architecture) -> bool:
    """Whether all modules of a network are those of a family that ablate knows.

    Only then are weights left undrawn, and modules that compute the same traced once:
    a user's module may do anything with its weights, and depend on anything.
    """
    return not architecture.code and families.find(architecture.backbone).blocks_known


def _own_cost(architecture: Architecture) -> Cost:
    """Returns the cost of the network of a user's trainer.

    Without inputs to trace it with, only its parameters are counted.

    Raises:
        Infeasible: the network cannot be built or traced at these levels.
    """
    trainer = trainer_named(architecture.trainer)
    if trainer.model is None:
        return UNCOUNTED
    source = f"trainer {trainer.name}"
    with torch.random.fork_rng(devices=[]):
        try:
            model = trainer.model(architecture.settings).eval()
        except Exception as error:
            raise mistakes.refusal(f"{source}: model= fails", error) from error
        if trainer.inputs is None:
            params = sum(p.numel() for p in model.parameters())
            return replace(UNCOUNTED, params=params)
        try:
            return cost_of(model, trainer.inputs(architecture.settings))
        except UncountedOperator as error:
            raise Infeasible(
                f"{source}: FLOPs cannot be counted: {error}. To count parameters only,"
                " leave inputs= out"
            ) from error
        except Exception as error:
            raise mistakes.refusal(
                f"{source}: the network cannot be traced with inputs=", error
            ) from error


def parameters(architecture: Architecture) -> int:
    """Returns the number of parameters, without tracing.

    Raises Infeasible if the architecture cannot be built.
    """
    with torch.random.fork_rng(devices=[]), _building(architecture):
        return sum(p.numel() for p in build(architecture).parameters())


def model_and_image(architecture: Architecture) -> tuple[nn.Module, Tensor]:
    """Returns the network and one input for it.

    The weights do not matter, and the caller's random state does not change.
    """
    with torch.random.fork_rng(devices=[]), _building(architecture):
        model = build(architecture).eval()
        if architecture.head:
            model = heads.find(architecture.head).counted(model).eval()
    return model, torch.zeros(1, *architecture.input_shape)


def _building(architecture: Architecture) -> AbstractContextManager[object]:
    if _is_known(architecture):
        return Uninitialised()
    return nullcontext()


class Uninitialised(TorchFunctionMode):
    """Leaves parameters as they are allocated.

    Drawing the initial weights of a network takes longer than building it.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        # Functions of torch.nn.init pass the tensor by its name.
        changed = args[0] if args else kwargs.get("tensor")
        is_in_place = name.endswith("_") and not name.endswith("__")
        if (
            is_in_place
            and isinstance(changed, nn.Parameter)
            and name != "requires_grad_"
        ):
            return changed
        return func(*args, **kwargs)


def cost_of(model: nn.Module, image: Tensor, *, share: bool = False) -> Cost:
    """Returns the cost of any module for one input (1, channels, height, width).

    Args:
        share: trace modules that compute the same once. Their forwards must not depend
            on the values of weights and inputs, nor on anything outside (`Alike`).

    Raises:
        UncountedOperator: an operator of the network has no rule; the message names it
            and says where to add one.
    """
    traced = _trace(model, image, handles(), share=share)
    total = traced.counted
    matrix = _class_total(total, "matrix")
    # Circulant projections run as Fourier transforms and complex products, and `matrix`
    # includes neither.
    by_formula = sum(
        times * projection.paper_flops(vectors)
        for projection, vectors, times in traced.circulants
    )
    return Cost(
        params=sum(p.numel() for p in model.parameters()),
        flops=round(matrix + _class_total(total, "other")),
        flops_paper=round(matrix + by_formula),
        activations=round(_class_total(total, "activations")),
        elementwise=round(_class_total(total, "elementwise")),
    )


def module_flops(architecture: Architecture) -> int:
    """Returns multiply-adds of one image in linear and convolution modules alone.

    This is what counters see that hook modules. They miss products of tensors, as in
    attention, and convolutions that are not modules.
    """
    model, image = model_and_image(architecture)
    total = 0

    def add(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        weight = module.get_parameter("weight")
        if isinstance(module, nn.Linear):
            channels = output.shape[-1]
        else:
            channels = output.shape[1]
        # Every output position uses every weight once; the bias is free.
        total += output.numel() // channels * weight.numel()

    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            module.register_forward_hook(add)
    with torch.no_grad():
        model(image)
    return total


def operators(architecture: Architecture) -> dict[str, dict[str, int]]:
    """Returns FLOPs by class (matrix, other, elementwise) and operator."""
    model, image = model_and_image(architecture)
    table: dict[str, dict[str, int]] = {"matrix": {}, "other": {}, "elementwise": {}}
    counted = by_operator(model, image, handles(), share=_is_known(architecture))
    for key, number in sorted(counted.items()):
        group, _, operator = key.partition("/")
        if group in table:
            table[group][operator.removeprefix("aten::")] = round(number)
    return table


def _class_total(counter: Counter[str], group: str) -> float:
    return sum(number for key, number in counter.items() if key.startswith(group + "/"))


@dataclass(frozen=True)
class _Traced:
    """What a trace of a network shows.

    Attributes:
        counted: what the rules return, added up by key.
        circulants: circulant projections, the number of vectors that passed through one
            of them, and how often this happened.
    """

    counted: Counter[str]
    circulants: tuple[tuple[CirculantProjection, int, int], ...]


def by_operator(
    model: nn.Module,
    image: Tensor,
    rules: Mapping[str, Handle | None],
    *,
    share: bool = False,
) -> Counter[str]:
    """Applies rules to every operator that a network runs on one image.

    Args:
        rules: one rule by the name of an operator in torch's JIT graph; None for an
            operator that computes nothing.
        share: as for `cost_of`.

    Raises:
        UncountedOperator: an operator of the network has no rule; the message names it
            and says where to add one.
    """
    return _trace(model, image, rules, share=share).counted


def _trace(
    model: nn.Module,
    image: Tensor,
    rules: Mapping[str, Handle | None],
    *,
    share: bool,
) -> _Traced:
    """Traces a network."""
    with _ONE_AT_A_TIME, torch.no_grad(), _without_fast_path():
        alike = Alike(model if share else nn.Module())
        analysed = _analysed(model, image, rules, alike)
        # A module that runs twice has no cost of its own that could be repeated, so
        # every module is traced.
        if alike.ran_twice:
            alike = Alike(nn.Module())
            analysed = _analysed(model, image, rules, alike)
    analysis, by_module, vectors = analysed
    names = ["", *alike.repeats]
    uncounted = Counter[str]()
    counted = Counter[str]()
    for name in names:
        times = alike.repeats[name] or 1
        for key, number in by_module[name].items():
            counted[key] += times * number
        for operator, number in analysis.unsupported_ops(name).items():
            uncounted[operator] += times * number
    if uncounted:
        described = ", ".join(
            f"{name} ({number} times)" for name, number in sorted(uncounted.items())
        )
        raise UncountedOperator(
            f"no rule says how much {described} computes; add one to a file of your own,"
            f" as in @ablate.operator({min(uncounted)!r}), and name it: {option('with')}"
            " FILE"
        )
    circulants = tuple(
        (projection, number, alike.times(name)) for name, projection, number in vectors
    )
    return _Traced(counted=counted, circulants=circulants)


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Keeps torch from running a whole encoder layer as one operator.

    In evaluation without gradients, `nn.MultiheadAttention` and
    `nn.TransformerEncoder` do so, which hides what they compute.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _analysed(
    model: nn.Module,
    image: Tensor,
    rules: Mapping[str, Handle | None],
    alike: Alike,
) -> tuple[
    JitModelAnalysis,
    dict[str, Counter[str]],
    list[tuple[str, CirculantProjection, int]],
]:
    """Returns the analysis of a network, and what its circulant projections computed.

    The second value is the counts of each module.
    """
    analysis = JitModelAnalysis(model, (image,)).set_op_handle(**rules)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    # An operator counts for the modules that run, not for the owners of what they call.
    analysis.tracer_warnings("none").ancestor_mode("caller")
    with alike.in_place(), _recording(model) as vectors:
        by_module = analysis.by_module_and_operator()
    return analysis, by_module, vectors


@contextmanager
def _recording(
    model: nn.Module,
) -> Iterator[list[tuple[str, CirculantProjection, int]]]:
    """Records the circulant projections that run, and how many vectors pass through."""
    vectors: list[tuple[str, CirculantProjection, int]] = []
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, CirculantProjection):

            def record(
                projection: nn.Module,
                inputs: tuple[Tensor, ...],
                _: Tensor,
                name: str = name,
            ) -> None:
                assert isinstance(projection, CirculantProjection)
                number = int(inputs[0].shape[:-1].numel())
                vectors.append((name, projection, number))

            hooks.append(module.register_forward_hook(record))
    try:
        yield vectors
    finally:
        for hook in hooks:
            hook.remove()
