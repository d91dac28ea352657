"""The switches of a backbone of the user's own: `@ablate.backbone(factors=...)`."""

from __future__ import annotations

import pytest

from ablate import api, contracts, families, pipeline, space
from ablate.contracts.check import BrokenContract
from ablate.errors import AblateError, SpaceError
from ablate.own import registry
from ablate.records import Plan
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.conftest import Say
from tests.own.conftest import Run, Use

SMALL = """
from torch import nn
import ablate

@ablate.backbone(
    image_size=8,
    factors={"norm": ["batch", "layer"], "gate": [False, True], "width": ablate.Whole(1)},
)
def small(image_size, channels, classes, norm, gate, width=6):
    layers = [nn.Conv2d(channels, width, 3, padding=1)]
    layers += [nn.BatchNorm2d(width) if norm == "batch" else nn.GroupNorm(1, width)]
    if gate:
        layers += [nn.Conv2d(width, width, 1, bias=False), nn.Sigmoid()]
    pool = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *pool, nn.Linear(width, classes))

@ablate.backbone(image_size=8, factors={"width": [4, 8]})
def linear(image_size, channels, classes, width):
    pixels = channels * image_size**2
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, width), nn.Linear(width, classes))
"""
SPACE = """
question: Which switch earns its cost?
backbone: small
factors: {norm: [batch, layer], gate: [false, true]}
seeds: 1
data: {name: digits, train_images: 100, test_images: 50}
recipe: {epochs: 1, batch_size: 50, warmup_epochs: 0}
"""


def planned(text: str) -> Plan:
    return pipeline.cost_plan(space.load(text, "own.yaml"), "none.db")


def test_switches_are_factors(use: Use, run: Run, study: Study) -> None:
    use(SMALL)
    assert run(SPACE).trained == 4
    results = study.results().cells
    params = [cell.cost.params for cell in results if cell.cost]
    convolution, norm, linear = 6 * 9 + 6, 2 * 6, 6 * 10 + 10
    plain = convolution + norm + linear
    assert params == [plain, plain + 36, plain, plain + 36]
    assert [effect.changed for effect in study.effects()] == [
        {"gate": True},
        {"norm": "layer"},
        {"norm": "layer", "gate": True},
    ]
    with Reader(study.store) as reader:
        _, rows = reader.query("SELECT DISTINCT settings, code FROM architectures")
    assert len(rows) == 4
    for settings, code in rows:
        # A default that changes later must not give old results to new trials.
        assert '"width"' in str(settings)
        assert "backbone small" in str(code)
    assert run(SPACE).trained == 0


def test_designs_and_limits_work_on_switches(use: Use) -> None:
    use(SMALL)
    text = SPACE + "fixed: {width: 12}\ndesign: one-at-a-time\n"
    cells = planned(text).cells
    assert [dict(cell.levels) for cell in cells] == [
        {"norm": "batch", "gate": False},
        {"norm": "layer", "gate": False},
        {"norm": "batch", "gate": True},
    ]
    assert cells[2].cost is not None
    assert cells[2].cost.params - 12 * 12 == 12 * 9 + 12 + 24 + 12 * 10 + 10
    limited = planned(text + "limits: {params: <= 400}\n").cells
    assert [bool(cell.trials) for cell in limited] == [True, True, False]


def test_a_switch_that_only_one_backbone_has(use: Use) -> None:
    use(SMALL)
    text = SPACE.replace("backbone: small\n", "").replace(
        "factors: {", "factors: {backbone: [small, linear], width: [4, 6], "
    )
    text = text.replace("norm: [batch, layer], ", "")
    cells = {tuple(cell.levels.values()): cell for cell in planned(text).cells}
    plain = cells["linear", 4, False]
    assert plain.trials
    other = cells["linear", 4, True]
    assert other.same_as == plain.index
    assert "linear does not have gate" in other.note
    assert cells["linear", 6, False].note == (
        "on linear, width: 6 is not a level; allowed: 4, 8"
    )
    assert cells["small", 6, True].trials


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "batch, layer",
            "batch, group",
            "norm: 'group' is not a level; allowed: batch",
        ),
        ("gate:", "gat:", "unknown factor 'gat'; did you mean 'gate'?"),
        ("gate: [false, true]", "width: [0, 4]", "whole numbers from 1 up"),
        ("seeds", "fixed: {width: x}\nseeds", "width: 'x' is not a level"),
    ],
)
def test_a_wrong_level_is_named(use: Use, old: str, new: str, message: str) -> None:
    use(SMALL)
    with pytest.raises(SpaceError) as caught:
        space.load(SPACE.replace(old, new), "own.yaml")
    assert message in str(caught.value)


def test_a_switch_takes_the_place_of_a_factor_of_its_name(use: Use) -> None:
    use(SMALL.replace("image_size=8,\n", "image_size=8, like='vit',\n"))
    switch, _ = families.factors.find("norm", "small")
    assert switch.switch
    factor, _ = families.factors.find("norm", "deit_tiny_patch16_224")
    assert not factor.switch


def test_a_switch_named_remove_is_an_ordinary_factor(use: Use) -> None:
    use(SMALL.replace("gate", "remove"))
    text = SPACE.replace("gate: [false, true]", "remove: [false, true]")
    cells = planned(text.replace("seeds: 1", "design: leave-one-out\nseeds: 1")).cells
    assert [dict(cell.levels) for cell in cells] == [
        {"norm": "layer", "remove": True},
        {"norm": "batch", "remove": True},
        {"norm": "layer", "remove": False},
    ]
    assert all(cell.trials for cell in cells)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("norm, gate", "norm", "unexpected keyword argument 'gate'"),
        ("norm, gate", "norm, gate, more", "missing a required argument: 'more'"),
        ("width=6", "width=0", "the default width = 0 is not a level"),
        ('"gate": [', '"Norm": [True], "gate": [', "differ only in capital letters"),
        (
            '"gate": [',
            '"data.x": [True], "gate": [',
            "cannot have this name; use another name",
        ),
        ('["batch", "layer"]', "[]", "factor 'norm': list its levels"),
    ],
)
def test_a_wrong_declaration_is_named(
    use: Use, old: str, new: str, message: str
) -> None:
    with pytest.raises(AblateError) as caught:
        use(SMALL.replace(old, new))
    assert message in str(caught.value)


def test_a_switch_without_a_default_must_be_named(use: Use) -> None:
    use(SMALL.replace("width=6", "width"))
    assert "width has no default" in planned(SPACE).cells[0].note
    assert planned(SPACE + "fixed: {width: 6}\n").cells[0].trials


@pytest.mark.proof
def test_the_schema_knows_the_levels_of_each_backbone(use: Use) -> None:
    use(SMALL)
    levels = space.json_schema()["properties"]["fixed"]["properties"]
    assert levels["gate"]["enum"] == [False, True]
    built_in, own = levels["norm"]["anyOf"]
    assert own["enum"] == ["batch", "layer"]
    assert "rms" in built_in["enum"]
    assert len(levels["width"]["anyOf"]) == 2


def test_a_network_and_its_cost_from_python(use: Use) -> None:
    use(SMALL)
    plain = api.model_cost("small", image_size=8, classes=10, channels=1)
    gated = api.model_cost(
        "small", {"gate": True}, image_size=8, classes=10, channels=1
    )
    assert gated.params == plain.params + 36
    with pytest.raises(AblateError, match="not a level"):
        api.create_model("small", {"norm": "none"})


def test_the_checks_build_each_level(use: Use) -> None:
    use(SMALL.replace("    if gate:\n", "    if False:\n"))
    checks = {
        check.what: check
        for check in contracts.backbone_checks(registry.of_kind("backbone")["small"])
    }
    checks["norm = layer: changes the network, which trains and is counted"].run()
    with pytest.raises(BrokenContract, match="ignores gate"):
        checks["gate = true: changes the network, which trains and is counted"].run()


def test_a_whole_number_without_a_default_is_checked_at_its_least(
    use: Use, say: Say
) -> None:
    file = use(
        "import ablate\nfrom torch import nn\n"
        '@ablate.backbone(image_size=8, factors={"width": ablate.Whole(4),'
        ' "rate": ablate.Real(0)})\n'
        "def wide(image_size, channels, classes, width, rate):\n"
        "    assert width == 4 and rate == 1\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(channels * 64, width),\n"
        "        nn.ReLU(), nn.Linear(width, classes))\n"
    )
    code, out, err = say("check", str(file))
    assert code == 0, err
    assert "5 checks, all ok." in out
