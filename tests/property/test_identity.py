"""Identity: equal content has an equal hash, different content a different one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate import factors, records
from ablate.data import SETS
from ablate.families import resolve
from ablate.identity import DIGITS, canonical_json, content_hash
from ablate.records import Data, Level, Recipe, Trial

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values)
def test_the_hash_survives_json_and_reordering(value: object) -> None:
    def reverse(found: object) -> object:
        if isinstance(found, dict):
            return {k: reverse(found[k]) for k in reversed(list(found))}
        return [reverse(x) for x in found] if isinstance(found, list) else found

    digest = content_hash(value)
    assert len(digest) == DIGITS >= 16
    assert content_hash(reverse(value)) == digest
    assert content_hash(json.loads(canonical_json(value))) == digest


@given(values, values)
def test_different_content_has_a_different_hash(one: object, other: object) -> None:
    assert (content_hash(one) == content_hash(other)) == (
        canonical_json(one) == canonical_json(other)
    )


def test_whole_floats_are_integers_and_truth_is_not_one() -> None:
    assert content_hash({"a": 4.0}) == content_hash({"a": 4})
    assert content_hash({"a": True}) != content_hash({"a": 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: object()}])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        content_hash([value])


levels = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from(p.typical)
        for name, (_, p) in factors.parameters().items()
    },
)


@given(levels)
def test_canonical_settings_are_a_fixed_point_and_mean_the_same(
    settings: dict[str, Level],
) -> None:
    once = factors.canonical(settings)
    assert factors.canonical(once) == once
    assert set(once) <= set(settings)
    for name in set(settings) - set(once):
        factor, parameter = factors.find(name)
        unread = factors.unread_reason(name, settings)
        assert (
            unread
            or settings[name] == parameter.default
            or factor.neutral(factors.values_of(factor, settings))
        )


DATA = Data(name="digits", path="/anywhere", image_size=8, channels=1, classes=10)


def trial(**settings: Level) -> Trial:
    sizes: dict[str, Level] = {
        "size.width": 16,
        "size.depth": 1,
        "size.heads": 2,
        "size.patch_size": 4,
    }
    return Trial(
        architecture=resolve("vit", 8, 1, 10, sizes | settings),
        recipe=Recipe(),
        data=DATA,
        seed=0,
    )


def test_what_is_circumstance_is_not_in_the_identity() -> None:
    one = trial()
    assert (
        replace(one, data=replace(DATA, path="/elsewhere", workers=0, images=7)).hash
        == one.hash
    )
    assert trial(**{"shortcuts.count": 0, "shortcuts.b": 2}).hash == one.hash
    assert replace(one, recipe=Recipe(momentum=0.5)).hash == one.hash, (
        "AdamW reads no momentum"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"lr": 2e-3},
        {"epochs": 21},
        {"ema": 0.9},
        {"optimizer": "sgd"},
        {"precision": "bfloat16"},
    ],
)
def test_what_training_reads_is_in_the_identity(change: dict[str, object]) -> None:
    assert replace(trial(), recipe=Recipe(**change)).hash != trial().hash


def test_seed_and_content_of_the_data_are_in_the_identity() -> None:
    one = trial()
    hashes = {
        one.hash,
        replace(one, seed=1).hash,
        replace(one, data=replace(DATA, train_images=100)).hash,
    }
    assert len(hashes | {replace(one, data=replace(DATA, fingerprint="abc")).hash}) == 4


def test_hashes_do_not_change_between_versions() -> None:
    """If this fails, every stored result has lost its name: change the canonical form
    only on purpose.
    """
    assert trial().hash == "4c6a57803fdd40d48114"
    assert (
        trial(**{"shortcuts.count": 2, "ffn.kernel": 3}).hash == "f4ccd633221cc4070a15"
    )


@pytest.mark.parametrize(
    ("settings", "recipe"),
    [
        ({}, {"mixup": 0.2}),
        ({"ffn.form": "sum", "ffn.agelu": 1}, {}),
        ({"size.pool": "mean", "patch.cosine": 1.0}, {}),
    ],
)
def test_a_trial_that_was_computed_wrongly_before_has_another_hash_now(
    settings: dict[str, Level],
    recipe: dict[str, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    corrected = replace(trial(**settings), recipe=replace(Recipe(), **recipe)).hash
    monkeypatch.setattr(
        "ablate.records.trial._corrections", lambda architecture, recipe, data: {}
    )
    assert (
        replace(trial(**settings), recipe=replace(Recipe(), **recipe)).hash != corrected
    )


def test_other_trials_keep_their_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe(cutmix=1.0, repeats=3)
    kept = replace(trial(**{"size.pool": "mean"}), recipe=recipe).hash
    monkeypatch.setattr(
        "ablate.records.trial._corrections", lambda architecture, recipe, data: {}
    )
    assert replace(trial(**{"size.pool": "mean"}), recipe=recipe).hash == kept


@pytest.mark.parametrize("name", sorted(SETS))
def test_repeats_were_wrong_on_image_files_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated = replace(trial(), data=replace(DATA, name=name), recipe=Recipe(repeats=3))
    corrected = repeated.hash
    monkeypatch.setattr(
        "ablate.records.trial._corrections", lambda architecture, recipe, data: {}
    )
    # Other sets of image files came after the correction.
    wrong = name in ("imagenet", "folder", "flowers102", "pets")
    assert (replace(repeated).hash != corrected) == wrong


def test_a_backbone_that_averages_by_itself_is_corrected_too() -> None:
    """Its own pooling is left out of the settings, said or not."""
    said = resolve(
        "vit_little_patch16_reg4_gap_256",
        256,
        3,
        10,
        {"patch.cosine": 1.0, "size.pool": "mean"},
    )
    unsaid = resolve(
        "vit_little_patch16_reg4_gap_256", 256, 3, 10, {"patch.cosine": 1.0}
    )
    assert (
        records.trial._corrections(said, Recipe(), DATA)
        == records.trial._corrections(unsaid, Recipe(), DATA)
        == {"patch": 2}
    )
