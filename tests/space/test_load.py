"""Good documents: short and full forms mean the same, presets load, the schema admits
them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate import space
from ablate.data import refuse_recipe
from ablate.errors import Infeasible, SpaceError
from ablate.plan import make_plan
from ablate.records import Arithmetic, Cost, CostOf, Design, Limit, Recipe, Scheduler
from ablate.space.limits import parse as parse_limit
from ablate.space.load import study_name
from ablate.space.recipes import RECIPES
from ablate.text.document import parse

SPACES = sorted((Path(__file__).parents[2] / "search_spaces").rglob("*.yaml"))
SHORT = """
question: q
backbone: {family: vit, width: 16, depth: 1, heads: 2}
factors: {shortcuts.count: [0, 1]}
"""


@pytest.mark.parametrize("file", SPACES, ids=lambda f: f.stem)
def test_presets_load_and_open_with_their_command(file: Path) -> None:
    found = space.read(file)
    assert found.claim.question
    assert found.claim.expect
    assert found.claim.source
    assert file.read_text().startswith(
        ("# ablate run search_spaces/", "# ablate cost search_spaces/")
    )


@pytest.mark.parametrize("file", SPACES, ids=lambda f: f.stem)
def test_presets_fit_the_exported_schema(file: Path) -> None:
    schema = exported_schema()
    jsonschema.Draft202012Validator(schema).validate(
        parse(file.read_text(), file.name).values
    )


@cache
def exported_schema() -> dict[str, Any]:
    """The schema, which is checked once."""
    schema = space.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


@pytest.mark.proof
@pytest.mark.parametrize(
    "wrong",
    [
        {"sedes": 2},
        {"factors": {"shortcuts.cuont": [0, 1]}},
        {"factors": {"layout": ["serial", "x"]}},
    ],
)
def test_the_schema_refuses_what_loading_refuses(wrong: dict[str, object]) -> None:
    document = parse(SHORT, "x").values | wrong
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, space.json_schema())


def test_short_and_full_forms_are_one() -> None:
    full = """
design: {name: grid}
data: {name: digits}
recipe: {preset: small}
scheduler: {name: fifo}
seeds: [0, 1, 2]
"""
    one, other = space.load(SHORT, "a.yaml"), space.load(SHORT + full, "a.yaml")
    assert {**one.__dict__, "document": ""} == {**other.__dict__, "document": ""}


def test_defaults() -> None:
    found = space.load(SHORT, "a.yaml")
    assert found.seeds.numbers == (0, 1, 2)
    assert (found.criterion.metric, found.criterion.direction) == ("top1", "max")
    assert found.data.name == "digits"
    assert (found.design, found.scheduler, found.recipe) == (
        Design("grid"),
        Scheduler("fifo"),
        RECIPES["small"],
    )


@pytest.mark.parametrize(
    ("recipe", "warmup"),
    [
        ("{epochs: 1}", 0),
        ("{epochs: 2}", 1),
        ("{epochs: 3}", RECIPES["small"].warmup_epochs),
        ("{preset: deit, epochs: 1, batch_size: 64}", 0),
        ("{preset: deit, epochs: 4, batch_size: 64}", 3),
        ("{preset: deit, batch_size: 64}", RECIPES["deit"].warmup_epochs),
    ],
)
def test_a_warm_up_that_the_document_leaves_to_the_preset_fits_into_the_epochs(
    recipe: str, warmup: int
) -> None:
    assert (
        space.load(SHORT + f"recipe: {recipe}\n", "a.yaml").recipe.warmup_epochs
        == warmup
    )


@pytest.mark.parametrize(
    "recipe", ["{epochs: 1, warmup_epochs: 1}", "{epochs: 2, warmup_epochs: 5}"]
)
def test_a_warm_up_that_the_document_sets_is_never_changed(recipe: str) -> None:
    with pytest.raises(
        SpaceError,
        match=(
            r"warm-up epochs leave nothing of [12] epochs; set recipe.warmup_epochs"
            r" below [12]"
        ),
    ):
        space.load(SHORT + f"recipe: {recipe}\n", "a.yaml")


def test_a_warm_up_that_varies_is_that_of_each_cell() -> None:
    text = SHORT.replace("{shortcuts.count: [0, 1]}", "{recipe.warmup_epochs: [0, 1]}")
    found = space.load(text + "recipe: {epochs: 2}\n", "a.yaml")
    assert found.factors.levels == {"recipe.warmup_epochs": (0, 1)}


def test_yaml_is_yaml_1_2() -> None:
    values = parse(
        "a: 1e-3\nb: on\nc: no\nd: 012\ne: 1_0\nf: true\ng: ~\nh: 12:30\ni: -.5\n", "x"
    ).values
    assert values == {
        "a": 0.001,
        "b": "on",
        "c": "no",
        "d": 12,
        "e": "1_0",
        "f": True,
        "g": None,
        "h": "12:30",
        "i": -0.5,
    }


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("search_spaces/augvit/table3.yaml", "augvit/table3"),
        ("/home/me/search_spaces/quickstart.yaml", "quickstart"),
        ("elsewhere/my study.yaml", "my-study"),
        ("x.yaml", "x"),
    ],
)
def test_a_study_is_named_after_its_file(file: str, name: str) -> None:
    assert study_name(file) == name


FLOPS, BASELINE = CostOf("flops", of_baseline=False), CostOf("flops", of_baseline=True)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (
            "<= 1.1 * baseline",
            Limit(
                text="flops <= 1.1 * baseline",
                left=FLOPS,
                relation="<=",
                right=Arithmetic(1.1, "*", BASELINE),
            ),
        ),
        (
            "<baseline",
            Limit(text="flops <baseline", left=FLOPS, relation="<", right=BASELINE),
        ),
        (" >= 6e6 ", Limit(text="flops >= 6e6", left=FLOPS, relation=">=", right=6e6)),
        (
            "<= baseline.params",
            Limit(
                text="flops <= baseline.params",
                left=FLOPS,
                relation="<=",
                right=CostOf("params", True),
            ),
        ),
        (
            "- params <= 2",
            Limit(
                text="flops - params <= 2",
                left=Arithmetic(FLOPS, "-", CostOf("params", False)),
                relation="<=",
                right=2.0,
            ),
        ),
        ("== 3", None),
        ("<= baseline ** 2", None),
        ("<= True", None),
        ("<= 'a'", None),
        ("<= 1 <= 2", None),
        ("<= (1).real", None),
        ("<= " + "(" * 600, None),
        ("<= 1.1", Limit(text="flops <= 1.1", left=FLOPS, relation="<=", right=1.1)),
    ],
)
def test_limits(text: str, limit: Limit | None) -> None:
    assert parse_limit(text, "flops") == limit


@given(st.text(max_size=200))
@settings(deadline=None, max_examples=300)
def test_any_text_loads_or_is_refused_with_a_line(text: str) -> None:
    with pytest.raises(SpaceError) as error:
        space.load(text, "any.yaml")
    assert all(problem.line >= 1 for problem in error.value.problems)


keys = st.sampled_from(
    [
        "question",
        "backbone",
        "factors",
        "seeds",
        "data",
        "recipe",
        "design",
        "limits",
        "metric",
        "fixed",
        "full",
        "scheduler",
    ]
)
plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["vit", "grid", "digits", "small"])
)
nested = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.proof
@given(st.dictionaries(keys, nested, max_size=6))
@settings(deadline=None, max_examples=300)
def test_any_values_load_or_are_refused(values: dict[str, object]) -> None:
    import yaml

    try:
        space.load(yaml.safe_dump(values), "any.yaml")
    except SpaceError as error:
        assert str(error).startswith("any.yaml:")


def test_how_files_are_prepared_is_said_under_data() -> None:
    text = (
        SHORT + "data: {name: imagenet, mean: [0.5], std: [0.5, 0.4, 0.3], crop: 0.9,"
        " crop_mode: squash, interpolation: bicubic}\n"
    )
    data = space.load(text, "a.yaml").data
    assert (data.mean, data.std, data.crop, data.crop_mode, data.interpolation) == (
        (0.5,),
        (0.5, 0.4, 0.3),
        0.9,
        "squash",
        "bicubic",
    )
    jsonschema.validate(parse(text, "x").values, space.json_schema())


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "{name: digits, crop: 0.9}",
            (
                "a.yaml:5: data.crop = 0.9 works only on image files; digits is in"
                " memory, where test images are not cropped"
            ),
        ),
        (
            "{name: digits, mean: [0.5, 0.5], std: [1]}",
            "a.yaml:5: data.mean has 2 numbers; digits has 1 channel: write one",
        ),
        (
            "{name: imagenet, std: [0.5]}",
            "a.yaml:5: data.std comes with data.mean; write both",
        ),
        (
            "{name: imagenet, std: [0]}",
            "a.yaml:5: data.std.0: must be greater than 0, found 0",
        ),
        (
            "{name: imagenet, mean: 0.5}",
            "a.yaml:5: data.mean: must be a valid list, found 0.5",
        ),
        (
            "{name: imagenet, crop: 1.5}",
            "a.yaml:5: data.crop: must be less than or equal to 1, found 1.5",
        ),
        (
            "{name: imagenet, interpolation: cubic}",
            (
                "a.yaml:5: data.interpolation: 'cubic' is not allowed; allowed:"
                " bilinear, bicubic"
            ),
        ),
    ],
)
def test_preparations_that_are_refused(said: str, message: str) -> None:
    with pytest.raises(SpaceError) as error:
        space.load(f"{SHORT}data: {said}\n", "a.yaml")
    assert message in str(error.value)


def test_a_preset_asks_of_data_in_memory_only_what_they_can_go_through() -> None:
    text = SHORT + "recipe: {preset: deit, rand_augment: ''}\ndata: "
    in_memory, files = (
        space.load(text + "cifar10", "a.yaml").recipe,
        space.load(text + "imagenet", "a.yaml").recipe,
    )
    assert (in_memory.interpolation, in_memory.color_jitter) == ("bilinear", 0.0)
    assert (files.interpolation, files.color_jitter) == ("bicubic", 0.3)
    refuse_recipe(space.load(text + "cifar10", "a.yaml").data, in_memory)
    assert space.load(
        SHORT + "recipe: deit\ndata: cifar10", "a.yaml"
    ).recipe.rand_augment, "it is refused, not dropped"
    said = space.load(
        SHORT
        + "recipe: {preset: deit, rand_augment: '', color_jitter: 0.2}\ndata: cifar10",
        "a.yaml",
    )
    with pytest.raises(
        Infeasible, match="recipe.color_jitter works only on image files"
    ):
        refuse_recipe(said.data, said.recipe)


def test_one_mean_for_all_channels_is_a_mean_for_each() -> None:
    """Two ways to say one normalisation have one identity."""

    def hash_of(mean: str, std: str) -> str:
        text = f"""question: q
backbone: deit_tiny_patch16_224
factors: {{attnscale: [false, true]}}
data: {{name: imagenet, mean: {mean}, std: {std}}}
recipe: {{epochs: 1, warmup_epochs: 0}}
seeds: 1
"""
        plan = make_plan(
            space.load(text, "a.yaml"),
            lambda architecture: Cost(
                params=1, flops=1, flops_paper=1, activations=1, elementwise=1
            ),
        )
        return plan.cells[0].trials[0].hash

    assert hash_of("[0.5]", "[0.25]") == hash_of(
        "[0.5, 0.5, 0.5]", "[0.25, 0.25, 0.25]"
    )
    assert hash_of("[0.5]", "[0.25]") != hash_of("[0.5]", "[0.5]")


@pytest.mark.parametrize("pool", ["token", "mean", "norm-mean", "distilled"])
def test_a_declared_backbone_says_its_pooling(pool: str, tiny: str) -> None:
    backbone = (
        "backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, pool:"
        f" {pool}}}"
    )
    text = re.sub(r"^backbone: .*$", backbone, tiny, flags=re.MULTILINE)
    assert space.load(text, "tiny.yaml").factors.fixed["size.pool"] == pool


def test_a_summary_of_a_recipe_shows_a_zero_that_is_no_default() -> None:
    told = Recipe(
        beta1=0.0, mixup=0.8, cutmix=1.0, mixup_switch=0.0, weight_decay=0.0
    ).summary()
    assert (told["beta1"], told["mixup_switch"], told["weight_decay"]) == (
        0.0,
        0.0,
        0.0,
    )
    assert "ema" not in told, "a default is not said"


def test_an_npz_file_is_a_name_with_options(tmp_path: Path) -> None:
    import numpy as np

    file = tmp_path / "mine.npz"
    images = np.zeros((40, 8, 8), np.uint8)
    labels = np.arange(40) % 2
    np.savez(file, x_train=images, y_train=labels, x_test=images, y_test=labels)
    document = {
        "question": "Q?",
        "backbone": {
            "family": "vit",
            "patch_size": 2,
            "width": 16,
            "depth": 1,
            "heads": 2,
        },
        "factors": {"drop.dropout": [0, 0.1]},
        "seeds": 1,
        "data": {"name": str(file), "train_images": 20},
    }
    read = space.load(yaml.safe_dump(document), "s.yaml")
    assert (read.data.name, read.data.path) == ("npz", str(file))
    assert read.data.images == 20
    document["data"]["path"] = "other.npz"
    with pytest.raises(SpaceError, match="data has two files: name .* and path"):
        space.load(yaml.safe_dump(document), "s.yaml")
