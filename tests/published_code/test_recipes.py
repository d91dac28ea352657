"""The recipes of the papers' spaces, as their texts and published commands have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ablate import space
from ablate.plan.designs import combinations
from ablate.records import Recipe
from ablate.space.recipes import RECIPES

SPACES = Path(__file__).parents[2] / "search_spaces"
DEIT = RECIPES["deit"]
# Liu et al.: github.com/microsoft/Swin-Transformer, config.py.
SWIN = replace(DEIT, warmup_epochs=20, clip_grad=5.0, repeats=1, ema=0.0)
# Gong et al.: deit/README.md of ChengyueGongR/PatchVisionTransformer.
DIVERSE = replace(DEIT, mixup=0.0, repeats=1, min_lr=1e-7)
TUNED = RECIPES["finetune-384"]
AUGREG = RECIPES["augreg"]
# Wang et al.: README.md of VITA-Group/ViT-Anti-Oversmoothing, 2 x 256 images.
DEEP = replace(DEIT, batch_size=512, lr=5e-4)


def recipes(name: str) -> list[tuple[dict[str, object], Recipe]]:
    """Returns the levels and the recipe of each row of a space."""
    declared = space.read(SPACES / f"{name}.yaml")
    rows = []
    for levels in combinations(declared):
        changes = {
            factor.removeprefix("recipe."): level
            for factor, level in levels.items()
            if factor.startswith("recipe.")
        }
        rows.append((dict(levels), replace(declared.recipe, **changes)))
    return rows


def test_vit_l_is_fine_tuned_as_published() -> None:
    for _, recipe in recipes("patchdiv/table6"):
        assert recipe == replace(
            DIVERSE,
            epochs=40,
            batch_size=512,
            lr=5e-5,
            weight_decay=1e-8,
            label_smoothing=0.0,
            random_erasing=0.0,
            rand_augment="rand-n1-m1-mstd0.5-inc1",
        )


@pytest.mark.parametrize("table", ["patchdiv/table2", "patchdiv/table3"])
def test_quoted_models_train_by_their_own_recipes(table: str) -> None:
    for levels, recipe in recipes(table):
        ours = bool(levels.get("patch.contrastive") or levels.get("patch.mixing"))
        swin = "swin" in str(levels.get("backbone"))
        tuned = recipe.epochs == TUNED.epochs
        if tuned:
            expected = replace(TUNED, mixup=0.0, repeats=1) if ours else TUNED
        elif ours:
            expected = replace(DIVERSE, epochs=recipe.epochs)
        else:
            expected = SWIN if swin else DEIT
        assert recipe == expected, levels
        if ours:
            assert levels["drop.path"] == (0.75 if recipe.epochs == 400 else 0.5)
        else:
            assert levels["drop.path"] == (0.5 if swin else 0.1)


@pytest.mark.parametrize(
    "table", ["antioversmoothing/table1", "antioversmoothing/table2"]
)
def test_scaled_models_train_as_their_backbones(table: str) -> None:
    for levels, recipe in recipes(table):
        backbone = str(levels["backbone"])
        scaled = levels.get("attnscale") or levels.get("featscale", "none") != "none"
        deep = levels.get("size.depth") == 24 and "deit" in backbone
        if "swin" in backbone:
            expected, drop = SWIN, 0.3
        elif levels.get("patch.mixing"):
            expected, drop = DIVERSE, 0.5
        elif deep:
            expected, drop = DEEP, 0.1
            assert levels["drop.dropout"] == 0.2
        else:
            expected, drop = DEIT, 0.1
        assert recipe == expected, levels
        if backbone.startswith("vit_"):
            # Dosovitskiy et al. use no stochastic depth.
            assert not scaled
            drop = 0.0
        assert levels.get("drop.path", 0.0) == drop, levels


def test_detectors_start_from_imagenet_weights() -> None:
    starts = {
        levels["backbone"]: levels["pretrained"]
        for levels, _ in recipes("augvit/table9")
    }
    assert starts == {"deit_small_patch16_224": True, "pvt_small": False}


def test_a_vit_without_identity_has_no_stochastic_depth() -> None:
    declared = space.read(SPACES / "augvit/table1.yaml")
    assert dict(declared.factors.fixed) == {"identity": False}
    assert declared.recipe == replace(DEIT, interpolation="random")


@pytest.mark.parametrize("table", ["gelu", "glu", "parallel", "prglu"])
def test_mabvit_trains_as_augreg(table: str) -> None:
    """10,000 warm-up steps are 16 epochs of batches of 2,048, and 32 of 4,096."""
    assert AUGREG.loss == "bce"
    steps = 0.99 * 1_281_167 / AUGREG.batch_size
    assert round(10_000 / steps) == AUGREG.warmup_epochs
    for levels, recipe in recipes(f"mabvit/{table}"):
        expected = AUGREG
        if "tiny" in str(levels["backbone"]):
            expected = replace(AUGREG, mixup=0.0, rand_augment="rand-m0-n2-inc1")
        if "base" in str(levels["backbone"]):
            expected = replace(AUGREG, batch_size=2048, warmup_epochs=16)
        assert recipe == expected, levels


@pytest.mark.parametrize("number", range(1, 7))
def test_iffn_follows_the_text(number: int) -> None:
    """Each backbone by its own paper's recipe; docs/papers.md has the published one."""
    for _, recipe in recipes(f"iffn/table{number}"):
        assert (recipe.batch_size, recipe.lr, recipe.min_lr) == (1024, 1e-3, 1e-5)
