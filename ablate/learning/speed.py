"""How a network runs: compiled, with channels last, with less memory, in TF32.

Each of these is a field of the recipe, and so part of a trial's identity: it may change
the last bits of a result.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ablate.errors import Infeasible
from ablate.models import build
from ablate.records import Architecture, Recipe

# Compiled code is kept for so many shapes of its input: full and partial batches, in
# training and in evaluation, of each part of a network. Beyond that, torch would go on
# without compiling.
MOST_SHAPES = 64


def arrange(
    model: nn.Module, recipe: Recipe, device: torch.device, unread: Collection[str]
) -> None:
    """Prepares a network that is on its device, before copies of it are made.

    Args:
        unread: the fields of a recipe that the task does not read.
    """
    precision = "high" if recipe.tf32 else "highest"
    if device.type == "cuda":
        # A state of the process, which may have trained another trial before.
        torch.set_float32_matmul_precision(precision)
    if "channels_last" not in unread and recipe.channels_last:
        model.to(memory_format=torch.channels_last)
        model.register_forward_pre_hook(_channels_last)
    if "checkpointing" not in unread and recipe.checkpointing:
        enable_checkpointing(model)


def _channels_last(model: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (
        inputs[0].contiguous(memory_format=torch.channels_last),
        *inputs[1:],
    )


def compile_network(model: nn.Module) -> None:
    """Compiles a network, which keeps its class and the names of its weights.

    Hooks must be attached before: compiled code does not see later ones.
    """
    # Code for one shape each: code for all shapes would be chosen by the shapes that a
    # process has seen, and a resumed training would get other bits.
    dynamo: Any = torch._dynamo.config
    dynamo.recompile_limit = max(dynamo.recompile_limit, MOST_SHAPES)
    model.compile(dynamic=False)


@contextmanager
def eager(model: nn.Module) -> Iterator[None]:
    """While this lasts, a compiled network runs uncompiled, and hooks are called."""
    module: Any = model
    compiled = module._compiled_call_impl
    module._compiled_call_impl = None
    try:
        yield
    finally:
        module._compiled_call_impl = compiled


def compile_problem() -> str:
    """Why no network can be compiled here; empty if one can."""
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler) or shutil.which("clang++"):
        return ""
    return (
        f"recipe.compile needs a C++ compiler, and there is no {compiler} here; install"
        " one (on Debian: apt-get install g++), or name it in the variable CXX"
    )


def enable_checkpointing(model: nn.Module) -> None:
    """Has a network compute the activations of its blocks again in the backward pass.

    Raises:
        Infeasible: the network does not offer it.
    """
    enable: Any = getattr(model, "set_grad_checkpointing", None)
    problem = "it has no method set_grad_checkpointing"
    if enable is not None:
        try:
            enable(True)
        # So timm's networks say that they do not offer it.
        except (AssertionError, NotImplementedError) as error:
            problem = str(error) or problem
        else:
            return
    raise Infeasible(
        f"recipe.checkpointing: {type(model).__name__} cannot compute activations again:"
        f" {problem}"
    )


def refuse_checkpointing(architecture: Architecture) -> None:
    """Raises Infeasible if a network does not offer checkpointing of activations."""
    if architecture.hash not in _refusals:
        _refusals[architecture.hash] = _checkpointing_problem(architecture)
    if _refusals[architecture.hash]:
        raise Infeasible(_refusals[architecture.hash])


def _checkpointing_problem(architecture: Architecture) -> str:
    with torch.random.fork_rng(devices=[]):
        model = build(architecture)
    try:
        enable_checkpointing(model)
    except Infeasible as error:
        return str(error)
    return ""


# Why networks have no checkpointing, by the hash of their architecture; empty if they do.
_refusals: dict[str, str] = {}
