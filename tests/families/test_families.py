"""Every family keeps its promises, and every factor trains on every family that it is
defined on.
"""

from __future__ import annotations

import copy
import math

import pytest
import timm
import torch
from torch import nn

from ablate import factors, families
from ablate.cli.tables import backbones_table
from ablate.cost import count
from ablate.errors import Infeasible, UnknownName
from ablate.factors.factor import Factor, Join
from ablate.families import resolve
from ablate.families.family import Family, factor_of
from ablate.layers.attention import EditableAttention
from ablate.layers.layout import to_tokens
from ablate.learning.patches import PatchTerms
from ablate.models import build, make_editable, places_of
from ablate.models.block import arrange
from ablate.records import Architecture, Level

# One member of each family, as small as its family allows, and the side of its images.
SMALL: dict[str, tuple[str, int, dict[str, Level]]] = {
    "cait": ("cait_xxs24_224", 32, {"size.depth": 2}),
    "lvt": ("lvt_r2", 64, {}),
    "poolformer": ("poolformer_s12", 64, {}),
    "pvt": ("pvt_tiny", 64, {}),
    "pvt_v2": ("pvt_v2_b0", 64, {}),
    "swin": ("swin_tiny_patch4_window7_224", 32, {}),
    "t2t": ("t2t_vit_14", 64, {"size.depth": 2}),
    "timm": ("convnext_atto", 32, {}),
    "vit": ("deit_tiny_patch16_224", 64, {"size.depth": 2}),
}

# The backbones of users' files are tested in tests/own.
FAMILIES = {
    name: family for name, family in families.families().items() if not family.own
}

# Families whose models take images of any side.
ANY_SIDE = ("lvt", "poolformer", "pvt_v2", "timm")

# Levels of each factor that together read all its modules.
LEVELS: dict[str, dict[str, Level]] = {
    "attnscale": {"attnscale": True},
    "drop": {"drop.path": 0.1, "drop.dropout": 0.1, "drop.attention": 0.1},
    "featscale": {"featscale": "text"},
    "ffn": {"ffn.agelu": 2, "ffn.kernel": 3},
    "identity": {"identity": False},
    "layout": {"layout": "parallel"},
    "patch": {"patch.cosine": 0.5, "patch.contrastive": 0.5, "patch.mixing": 0.5},
    "representation": {"representation": True},
    "layer_scale": {"layer_scale": 0.1},
    "mlp": {"mlp": False},
    "norm": {"norm": "rms"},
    "qk_norm": {"qk_norm": "layer"},
    "registers": {"registers": 2},
    "remove": {"remove": "**.mlp"},
    "rotary": {"rotary": "axial"},
    "value_residual": {"value_residual": 0.6},
    "shortcuts": {"shortcuts.count": 2},
    "size": {"size.depth": 3},
    "talking_heads": {"talking_heads": "both"},
    "value": {"value": "swiglu"},
}
PAIRS = [
    (family, factor)
    for family in FAMILIES.values()
    for factor in factors.catalogue().values()
]
IDS = [f"{family.name}-{factor.name}" for family, factor in PAIRS]
# Two families of different layouts; the others are proofs.
OFTEN = ("vit", "pvt")
SHARED_PAIRS = [
    pytest.param(
        *pair,
        id=name,
        marks=() if pair[0].name in OFTEN else pytest.mark.proof,
    )
    for pair, name in zip(PAIRS, IDS, strict=True)
]


def architecture(family: str, **settings: Level) -> Architecture:
    name, side, sizes = SMALL[family]
    return resolve(name, side, 3, 10, {**sizes, **settings})


def images(family: str, count_: int = 2) -> torch.Tensor:
    side = SMALL[family][1]
    return torch.randn(
        count_, 3, side, side, generator=torch.Generator().manual_seed(1)
    )


def made(family: str, **settings: Level) -> nn.Module:
    torch.manual_seed(0)
    return build(architecture(family, **settings))


def levels_on(family: Family, factor: Factor) -> dict[str, Level]:
    """The factor's levels, without drop rates and sizes that the family cannot change."""
    fields = {
        "drop.path": "drop_path",
        "drop.dropout": "dropout",
        "drop.attention": "attention_dropout",
    }
    if factor.name == "size" and "depth" not in family.sizes:
        return {"size.window": 4} if "window" in family.sizes else {}
    return {
        name: level
        for name, level in LEVELS[factor.name].items()
        if fields.get(name, "depth") in family.sizes | {"depth"}
    }


def test_the_tests_know_every_family_and_factor() -> None:
    assert set(SMALL) == set(FAMILIES)
    assert set(LEVELS) == set(factors.catalogue())


@pytest.mark.parametrize(("family", "factor"), SHARED_PAIRS)
def test_a_factor_trains_and_costs_or_says_why_not(
    family: Family, factor: Factor
) -> None:
    levels = levels_on(family, factor)
    if not levels:
        with pytest.raises(Infeasible, match="cannot be changed"):
            made(family.name, **{"size.width": 48})
        return
    if any(slot in family.lacks for slot in factor.needs):
        with pytest.raises(
            Infeasible, match=f"{factor.name} is not defined on {SMALL[family.name][0]}"
        ):
            made(family.name, **levels)
        return
    found = architecture(family.name, **levels)
    torch.manual_seed(0)
    model = build(found).train()
    terms = PatchTerms(found, model)
    parameters = {
        **dict(model.named_parameters()),
        **{f"terms.{n}": p for n, p in terms.named_parameters()},
    }
    optimizer = torch.optim.SGD(parameters.values(), lr=1e-3)
    places = places_of(model)
    patches = math.prod(places[-1].site.grid) if places else 1
    for _ in range(2):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            model(images(family.name)), torch.tensor([1, 2])
        )
        (loss + terms(torch.full((2, patches, 10), 0.1))).backward()
        for name, weight in parameters.items():
            if weight.requires_grad:
                assert weight.grad is not None, f"{name} gets no gradient"
                assert weight.grad.isfinite().all(), name
        optimizer.step()
    assert (factor.loss_terms is not None) == bool(terms.terms)
    assert count(found).flops > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_neutral_is_bit_for_bit_the_library(family: str) -> None:
    neutral = {
        factor.full_name(p.name): p.default
        for factor in factors.catalogue().values()
        for p in factor.parameters
        if p.default is not None
    }
    name, side, _ = SMALL[family]
    sized = {} if family in ANY_SIDE else {"img_size": side}
    ours = made(family, **neutral) if family not in ("cait", "t2t", "vit") else None
    if ours is None:
        torch.manual_seed(0)
        ours = build(resolve(name, side, 3, 10, neutral))
    torch.manual_seed(0)
    theirs = timm.create_model(name, num_classes=10, **sized)
    mine, other = ours.state_dict(), theirs.state_dict()
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[key], other[key]) for key in mine)
    with torch.no_grad():
        assert torch.equal(ours.eval()(images(family)), theirs.eval()(images(family)))


@pytest.mark.parametrize("family", FAMILIES)
def test_editable_attention_and_arranged_blocks_compute_the_same(family: str) -> None:
    record = FAMILIES[family]
    model = made(family).eval()
    with torch.no_grad():
        expected = model(images(family))
        keys = set(model.state_dict())
        editable, seen = copy.deepcopy(model), 0

        def look(what: object) -> None:
            nonlocal seen
            seen += 1

        for place in record.blocks(editable):
            if place.attention is not None:
                attention = make_editable(editable, record, place)
                assert isinstance(attention, EditableAttention)
                torch.testing.assert_close(
                    editable(images(family)), expected, atol=1e-4, rtol=1e-4
                )
                attention.observer = look
        torch.testing.assert_close(
            editable(images(family)), expected, atol=1e-4, rtol=1e-4
        )
        assert set(editable.state_dict()) == keys
        assert seen or "attention" in record.lacks

        for place in record.blocks(model):
            if place.residual:
                arrange(
                    model.get_submodule(place.name),
                    record.algebra,
                    {"msa": [], "mlp": []},
                    {"msa": [], "mlp": []},
                    Join(),
                )
        torch.testing.assert_close(
            model(images(family)), expected, atol=1e-5, rtol=1e-5
        )
        torch.testing.assert_close(
            copy.deepcopy(model)(images(family)), expected, atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_places_tell_the_truth(family: str) -> None:
    record, model = FAMILIES[family], made(family).eval()
    places = record.blocks(model)
    tokens: dict[str, tuple[int, ...]] = {}
    for place in places:
        block = model.get_submodule(place.name)

        def hook(
            module: nn.Module,
            inputs: object,
            output: torch.Tensor,
            place: families.family.BlockPlace = place,
        ) -> None:
            tokens[place.name] = tuple(to_tokens(output, place.layout).shape[1:])

        block.register_forward_hook(hook)
    last: list[torch.Tensor] = []
    model.get_submodule(record.last_norm).register_forward_hook(
        lambda module, inputs, output: last.append(output)
    )
    with torch.no_grad():
        model(images(family, 1))
    assert [place.site.layer for place in places] == list(range(len(places)))
    for place in places:
        site = place.site
        assert site.depth == len(places)
        if site.grid != (0, 0):
            assert tokens[place.name] == (
                site.prefix + site.grid[0] * site.grid[1],
                site.width,
            ), place.name
        if place.ffn is not None:
            assert model.get_submodule(f"{place.name}.{place.ffn}.fc1").weight.shape[
                :2
            ] == (site.hidden, site.width)
    assert last, "the module of the last layer's tokens is called"
    if "head" not in record.lacks:
        assert not list(model.get_submodule(record.before_head).parameters())


def test_every_member_is_found_in_its_family() -> None:
    for family in FAMILIES.values():
        for name in families.members_of(family)[:3]:
            assert families.find(name) is family
    with pytest.raises(UnknownName, match="did you mean 'pvt_small'"):
        families.find("pvt_smal")
    with pytest.raises(
        UnknownName, match="known are the models of the families cait, lvt"
    ):
        families.find("zzz")


def test_importing_the_backbones_registers_them_with_timm() -> None:
    import ablate.backbones  # noqa: F401

    for name in ("pvt_small", "pvt_medium", "t2t_vit_14", "t2t_vit_t_24", "lvt_r4"):
        assert timm.is_model(name)
    assert timm.create_model("lvt_r1", num_classes=7, img_size=64)(
        images("lvt")
    ).shape == (2, 7)


PRINTED = [
    # backbone, parameters (M), FLOPs (G) of its own paper; T2T-ViT as its later
    # revision counts
    ("pvt_small", 24.5, 3.8),
    ("pvt_medium", 44.2, 6.7),
    ("t2t_vit_14", 21.5, 4.8),
    ("t2t_vit_t_14", 21.5, 6.1),
    ("t2t_vit_19", 39.2, 8.5),
    ("lvt_r1", 5.5, 0.8),
    ("lvt_r2", 5.5, 0.9),
]


@pytest.mark.parametrize(("name", "params", "flops"), PRINTED)
def test_our_backbones_cost_what_their_papers_print(
    name: str, params: float, flops: float
) -> None:
    found = count(resolve(name, 224, 3, 1000, {}))
    assert round(found.params / 1e6, 1) == params
    assert round(found.flops_paper / 1e9, 1) == flops


def test_swins_edits_see_one_window() -> None:
    model = made("swin", attnscale=True)
    shapes = []
    family = FAMILIES["swin"]
    attention = make_editable(model, family, family.blocks(model)[0])
    attention.observer = lambda seen: shapes.append(seen.weights.shape)
    with torch.no_grad():
        model(images("swin", 1))
    # 32 / 4 = 8 tokens a side: 2 x 2 windows of 7 x 7 after padding.
    assert shapes == [(4, 3, 49, 49)]


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("cait_xxs24_224", {"talking_heads": "both"}, "talks across heads already"),
        ("pvt_v2_b0", {"ffn.kernel": 3}, "depthwise convolution of its own"),
        (
            "poolformer_s12",
            {"attnscale": True},
            "it has pooling in the place of attention",
        ),
        (
            "swin_tiny_patch4_window7_224",
            {"patch.cosine": 1.0},
            "differ in the number and the width",
        ),
        (
            "pvt_small",
            {"size.depth": 3},
            "on pvt_small; sizes and drop rates that can be changed: drop.attention",
        ),
        ("deit_tiny_patch16_224", {"size.window": 4}, "size.window cannot be changed"),
        (
            "deit_tiny_patch16_224",
            {"ffn.form": "sum", "ffn.agelu": 2},
            r"ffn.agelu must be 0 \(plain activations\) or 1 \(AGeLUs\), not 2",
        ),
        (
            "deit_tiny_patch16_224",
            {"shortcuts.count": 3, "shortcuts.variant": "code"},
            "has one or two shortcuts, not 3",
        ),
    ],
)
def test_what_a_family_has_not_is_refused_with_the_reason(
    name: str, settings: dict[str, Level], reason: str
) -> None:
    with pytest.raises(Infeasible, match=reason):
        build(resolve(name, 224, 3, 10, settings))


@pytest.mark.parametrize(
    "name", ["pvt_small", "lvt_r1", "poolformer_s12", "t2t_vit_14"]
)
def test_image_sides_that_do_not_fit_are_refused(name: str) -> None:
    with pytest.raises(
        Infeasible,
        match="needs an image side that is a multiple of (16|32); data.image_size is 40",
    ):
        build(resolve(name, 40, 3, 10, {}))


def test_a_depthwise_block_passes_prefix_tokens_by() -> None:
    model = made("vit", **{"ffn.kernel": 3}).eval()
    depthwise = model.get_submodule("blocks.0.mlp.depthwise")
    x = torch.randn(2, 17, 768)
    with torch.no_grad():
        out = depthwise(x)
    assert torch.equal(out[:, 0], x[:, 0])
    assert not torch.equal(out[:, 1:], x[:, 1:])


def test_lvts_class_attention_gets_the_channel_part_alone() -> None:
    model = made("lvt", **{"ffn.agelu": 2, "ffn.kernel": 3})
    kinds = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if name.startswith("class_blocks.0.mlp.")
    }
    assert "alpha" in dict(
        model.get_submodule("class_blocks.0.mlp.act").named_parameters()
    )
    assert isinstance(
        model.get_submodule("class_blocks.0.mlp.depthwise"), nn.Identity
    ), kinds


def test_the_list_of_backbones_has_the_factors_that_can_vary_on_each() -> None:
    """`size` and `drop` are listed only where one of their parameters can change."""
    listed = {row[0]: row[-1].split(", ") for row in backbones_table(None).rows}
    for family in families.families().values():
        changing = {factor_of(size).partition(".")[0] for size in family.sizes}
        assert {"size", "drop"} & set(listed[family.name]) == changing
    assert "size" not in listed["lvt"]
    notes = backbones_table("timm").notes
    assert "timm: sizes and drop rates that can change: drop.head, drop.path." in notes
