"""Losses on patch tokens: labels of patches by area, terms in the training loss,
resumed bit for bit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from timm.data import Mixup

from ablate.learning.loss import mixer
from ablate.learning.patches import PatchMixup, PatchTerms
from ablate.models import build
from ablate.records import Level, Recipe
from tests.training.test_training import RECIPE, train, trial

MIXED = replace(RECIPE, cutmix=1.0, epochs=3)
ALL: dict[str, Level] = {
    "patch.cosine": 0.5,
    "patch.contrastive": 0.5,
    "patch.mixing": 0.5,
}


def mixup(**changes: float) -> PatchMixup:
    made = mixer(Recipe(**changes), 4)
    assert made is not None
    return made


def slow_labels(
    share: np.ndarray, own: np.ndarray, other: np.ndarray, grid: int
) -> np.ndarray:
    """Each patch's label by counting pixels."""
    side = share.shape[0] // grid
    found = []
    for row in range(grid):
        for column in range(grid):
            area = share[
                row * side : (row + 1) * side, column * side : (column + 1) * side
            ].mean()
            found.append(area * own + (1 - area) * other)
    return np.stack(found)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_a_patch_has_the_labels_of_its_pixels(seed: int, smoothing: float) -> None:
    np.random.seed(seed)
    mix = mixup(cutmix=1.0, label_smoothing=smoothing)
    own = torch.arange(6).float()[:, None, None, None].expand(6, 1, 16, 16).clone()
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    mixed, soft = mix(own.clone(), labels)
    found = mix.patch_labels(labels, 4, (4, 4))
    one_hot = np.eye(4)[labels.numpy()] * (1 - smoothing) + smoothing / 4
    for index in range(6):
        share = (mixed[index, 0].numpy() == index).astype(float)
        expected = slow_labels(share, one_hot[index], one_hot[5 - index], 4)
        np.testing.assert_allclose(found[index], expected, atol=1e-6)
    # The image's own label is the mean of its patches' labels.
    torch.testing.assert_close(found.mean(1), soft.float(), atol=1e-6, rtol=0)


def test_mixup_gives_every_patch_the_same_blend() -> None:
    np.random.seed(0)
    mix = mixup(mixup=1.0)
    labels = torch.tensor([0, 1, 2, 3])
    _, soft = mix(torch.randn(4, 3, 8, 8), labels)
    found = mix.patch_labels(labels, 4, (2, 2))
    torch.testing.assert_close(
        found, soft.float()[:, None].expand(4, 4, 4), atol=1e-6, rtol=0
    )


def test_the_network_is_left_as_it_is() -> None:
    wanted = trial(**ALL)
    torch.manual_seed(0)
    model = build(wanted.architecture)
    torch.manual_seed(0)
    plain = build(trial().architecture)
    assert model.state_dict().keys() == plain.state_dict().keys()
    terms = PatchTerms(wanted.architecture, model)
    images = torch.randn(4, 1, 8, 8)
    model.eval()
    with torch.no_grad():
        assert torch.equal(model(images), plain.eval()(images))
        model.train()(images)
    labels = torch.full((4, 4, 10), 0.1)
    total = terms(labels)
    assert isinstance(total, torch.Tensor)
    assert total.item() > 0


@pytest.mark.proof
@pytest.mark.parametrize("name", ALL)
def test_each_term_changes_what_is_learnt(name: str, tmp_path: Path) -> None:
    without, _ = train(trial(MIXED), tmp_path / "without")
    with_, _ = train(trial(MIXED, **{name: 1.0}), tmp_path / "with")
    assert with_ != without


CODE: dict[str, Level] = {
    "patch.contrastive": 0.5,
    "patch.mixing": 0.5,
    "patch.variant": "code",
}


def test_the_published_variant_trains_otherwise(tmp_path: Path) -> None:
    text, _ = train(
        trial(MIXED, **(CODE | {"patch.variant": "text"})), tmp_path / "text"
    )
    code, _ = train(trial(MIXED, **CODE), tmp_path / "code")
    assert code != text
    assert np.isfinite(np.array(code, dtype=float)).all()


@pytest.mark.parametrize("settings", [ALL, CODE], ids=["text", "code"])
def test_a_resumed_training_with_terms_is_bit_for_bit_the_same(
    settings: dict[str, Level], tmp_path: Path
) -> None:
    recipe = replace(MIXED, ema=0.9, clip_grad=1.0, mixup=0.3)
    whole = train(trial(recipe, **settings), tmp_path / "whole")
    parts = train(trial(recipe, **settings), tmp_path / "parts", stops=(1, 2))
    assert whole[0] == parts[0]
    assert all(torch.equal(whole[1][key], parts[1][key]) for key in whole[1])


@pytest.mark.parametrize(
    "recipe",
    [{"mixup": 0.8}, {"cutmix": 1.0}, {"mixup": 0.8, "cutmix": 1.0, "mixup_prob": 0.6}],
)
@pytest.mark.parametrize("seed", range(4))
def test_batches_are_mixed_as_timm_mixes_them(
    recipe: dict[str, float], seed: int
) -> None:
    mix = mixup(**recipe, label_smoothing=0.1)
    timms = Mixup(
        mix.mixup_alpha,
        mix.cutmix_alpha,
        prob=mix.mix_prob,
        label_smoothing=0.1,
        num_classes=4,
    )
    images, labels = (
        torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(seed)),
        torch.arange(6) % 4,
    )
    np.random.seed(seed)
    own = mix(images.clone(), labels)
    np.random.seed(seed)
    expected = timms(images.clone(), labels)
    assert torch.equal(own[0], expected[0])
    assert torch.equal(own[1], expected[1])
