"""The contract that every factor keeps. A new factor file is tested by being there."""

from __future__ import annotations

import copy
import itertools

import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer

from ablate import factors
from ablate.cost import count
from ablate.errors import Infeasible
from ablate.factors.factor import Factor, Parameter, always
from ablate.families import resolve
from ablate.models import build
from ablate.records import Level

SMALL: dict[str, Level] = {
    "size.patch_size": 2,
    "size.width": 24,
    "size.depth": 3,
    "size.heads": 3,
    "size.mlp_ratio": 4.0,
}
LEVELS = [
    (factor, parameter, level)
    for factor in factors.catalogue().values()
    for parameter in factor.parameters
    for level in parameter.typical
    # The contract is kept on a ViT; tests/families holds it elsewhere, and the losses,
    # which leave the network as it is.
    if factor.full_name(parameter.name) != "size.window" and factor.kind != "loss"
]
IDS = [
    f"{factor.full_name(parameter.name)}={level}" for factor, parameter, level in LEVELS
]


def small(settings: dict[str, Level], image_size: int = 16) -> torch.nn.Module:
    torch.manual_seed(0)
    return build(resolve("vit", image_size, 3, 10, {**SMALL, **settings}))


def image(batch: int = 2, side: int = 16) -> torch.Tensor:
    return torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(1))


def with_companions(
    factor: Factor, parameter: Parameter, level: Level
) -> dict[str, Level]:
    """The settings in which a level is read: alone, or with the fewest levels of its
    neighbours.
    """
    name = factor.full_name(parameter.name)
    others = [p for p in factor.parameters if p is not parameter]
    for number in range(len(others) + 1):
        for chosen in itertools.combinations(others, number):
            for levels in itertools.product(*(p.typical for p in chosen)):
                found = {name: level} | {
                    factor.full_name(p.name): x
                    for p, x in zip(chosen, levels, strict=True)
                }
                if not factors.unread_reason(name, found):
                    return found
    raise AssertionError(f"nothing makes the model read {name}")


def same_state(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "deit_tiny_patch16_224",
        "deit_small_patch16_224",
        "deit_tiny_distilled_patch16_224",
    ],
)
def test_neutral_levels_are_bit_for_bit_timms_model(name: str) -> None:
    neutral = {
        factor.full_name(p.name): p.default
        for factor in factors.catalogue().values()
        for p in factor.parameters
        if p.default is not None
    }
    own = {
        "size.pool": "distilled" if "distilled" in name else "token",
        "size.depth": 12,
        "size.patch_size": 16,
    }
    torch.manual_seed(3)
    ours = build(resolve(name, 224, 3, 1000, {**neutral, **own})).eval()
    torch.manual_seed(3)
    theirs = timm.create_model(name).eval()
    assert same_state(ours, theirs)
    with torch.no_grad():
        assert torch.equal(ours(image(1, 224)), theirs(image(1, 224)))


def test_a_declared_vit_is_timms_class() -> None:
    torch.manual_seed(0)
    theirs = VisionTransformer(
        img_size=16,
        patch_size=2,
        embed_dim=24,
        depth=3,
        num_heads=3,
        mlp_ratio=4.0,
        num_classes=10,
    )
    assert same_state(small({}), theirs)


@pytest.mark.parametrize("factor", factors.catalogue().values(), ids=lambda f: f.name)
def test_a_factor_says_what_it_is(factor: Factor) -> None:
    assert factor.source
    assert factor.claim.endswith(".")
    assert factor.kind in (
        "replace",
        "edit",
        "path",
        "arrange",
        "head",
        "size",
        "recipe",
        "loss",
    )
    defaults = {p.name: p.default for p in factor.parameters if p.default is not None}
    assert factor.neutral(defaults)
    for p in factor.parameters:
        assert p.about
        assert p.typical, "a parameter without typical levels is untested"
        assert all(p.allowed.accepts(level) for level in p.typical)
        assert p.default is None or p.allowed.accepts(p.default)
        assert p.default not in p.typical
        assert bool(p.when) == (p.read is not always), (
            "a condition is said in words exactly where there is one"
        )


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "parameter", "level"), LEVELS, ids=IDS)
def test_every_level_changes_the_model(
    factor: Factor, parameter: Parameter, level: Level
) -> None:
    found = with_companions(factor, parameter, level)
    name = factor.full_name(parameter.name)
    without = {key: value for key, value in found.items() if key != name}
    here, there = small(found).train(), small(without).train()
    if {k: v.shape for k, v in here.state_dict().items()} != {
        k: v.shape for k, v in there.state_dict().items()
    }:
        return
    torch.manual_seed(5)
    out = here(image())
    torch.manual_seed(5)
    assert not torch.equal(out, there(image()))


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "parameter", "level"), LEVELS, ids=IDS)
def test_every_level_trains_costs_and_copies(
    factor: Factor, parameter: Parameter, level: Level
) -> None:
    found = with_companions(factor, parameter, level)
    model = small(found).train()
    loss = torch.nn.functional.cross_entropy(model(image()), torch.tensor([1, 2]))
    loss.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, f"{name} gets no gradient"
        assert weight.grad.isfinite().all(), name
    model.eval()
    assert count(resolve("vit", 16, 3, 10, {**SMALL, **found})).flops > 0
    with torch.no_grad():
        expected = model(image(1))
        assert torch.equal(copy.deepcopy(model)(image(1)), expected)
        again = small(found)
        for weight in again.parameters():
            weight.add_(1.0)
        again.load_state_dict(model.state_dict())
        assert torch.equal(again.eval()(image(1)), expected)


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "parameter", "level"), LEVELS, ids=IDS)
@pytest.mark.parametrize(
    "backbone", ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224"]
)
def test_any_number_of_prefix_tokens(
    backbone: str, factor: Factor, parameter: Parameter, level: Level
) -> None:
    sizes: dict[str, Level] = {"size.depth": 2, "size.width": 24, "size.heads": 3}
    found = with_companions(factor, parameter, level)
    own = "distilled" if "distilled" in backbone else "token"
    for pool in (own, "mean"):
        try:
            model = build(
                resolve(backbone, 32, 3, 10, {**sizes, "size.pool": pool, **found})
            )
        except Infeasible as error:
            assert pool == "mean" or found.get("size.pool", own) != own, error
            continue
        assert model.eval()(image(1, 32)).shape == (1, 10)


@pytest.mark.slow
def test_all_pairs_build_or_give_a_reason() -> None:
    single = {name: (f, p) for name, (f, p) in factors.parameters().items()}
    built = 0
    for one, two in itertools.combinations(single, 2):
        settings: dict[str, Level] = {}
        for name in (one, two):
            factor, parameter = single[name]
            settings |= with_companions(factor, parameter, parameter.typical[-1])
        try:
            out = small(settings).eval()(image(1))
        except Infeasible as error:
            assert str(error)
        else:
            built += 1
            assert out.shape == (1, 10)
            assert out.isfinite().all()
    assert built > 100


def test_shared_weights_start_equal_for_equal_seeds() -> None:
    plain = small({}).state_dict()
    modified = small(
        {"shortcuts.count": 2, "ffn.agelu": 2, "ffn.kernel": 3, "layout": "parallel"}
    ).state_dict()
    shared = [k for k in plain if k in modified and plain[k].shape == modified[k].shape]
    assert len(shared) > 0.7 * len(plain)
    assert all(torch.equal(plain[k], modified[k]) for k in shared)
