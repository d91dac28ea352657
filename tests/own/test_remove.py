"""The factor `remove`: any module of any network, by its name."""

from __future__ import annotations

import copy

import pytest
import torch

from ablate import pipeline, space
from ablate.cost import count
from ablate.errors import Infeasible, SpaceError
from ablate.factors.remove import matching
from ablate.families import resolve
from ablate.models import build, places_of
from ablate.records import Cell, Plan
from ablate.results.study import Study
from tests.own.conftest import Run, Use

SPACE = """
question: Which MLP is needed?
backbone: {family: vit, patch_size: 4, width: 16, depth: 3, heads: 2, mlp_ratio: 2}
design: leave-one-out
factors: {remove: [each blocks.*.mlp]}
data: {name: digits, train_images: 100, test_images: 50}
recipe: {epochs: 1, batch_size: 50, warmup_epochs: 0}
seeds: 1
"""
OWN = """
import torch
from torch import nn
import ablate

class Mixed(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.stem = nn.Conv2d(channels, 16, 2, 2)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.attn = nn.MultiheadAttention(16, 2, batch_first=True)
        self.act = nn.Identity()
        self.unused = nn.Linear(16, 16)
        self.pair = Pair()
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        x = self.act(self.stem(x)).flatten(2).transpose(1, 2)
        x = self.layer(x)
        x = x + self.attn(x, x, x)[0]
        return self.head(self.pair(x)["mean"])

class Pair(nn.Module):
    def forward(self, x):
        return {"mean": x.mean(1)}

@ablate.backbone(image_size=8)
def mixed(image_size, channels, classes):
    return Mixed(channels, classes)
"""


def planned(text: str) -> Plan:
    return pipeline.cost_plan(space.load(text, "own.yaml"), "none.db")


def by_part(text: str) -> dict[str, Cell]:
    return {str(cell.levels["remove"]): cell for cell in planned(text).cells}


def removing(parts: str, text: str = SPACE) -> str:
    text = text.replace("design: leave-one-out\n", "")
    return text.replace("[each blocks.*.mlp]", f'[none, "{parts}"]')


def test_a_study_in_one_line(run: Run, study: Study) -> None:
    assert run(SPACE).trained == 4
    cells = study.results().cells
    assert [cell.levels["remove"] for cell in cells] == [
        "none",
        "blocks.0.mlp",
        "blocks.1.mlp",
        "blocks.2.mlp",
    ]
    params = [cell.cost.params for cell in cells if cell.cost]
    mlp = 16 * 32 + 32 + 32 * 16 + 16
    assert params == [params[0], *[params[0] - mlp] * 3]


def test_other_factors_are_left_out_beside_the_parts() -> None:
    text = SPACE.replace("mlp]", "mlp], shortcuts.count: [0, 1]")
    cells = [dict(cell.levels) for cell in planned(text).cells]
    full = {"remove": "none", "shortcuts.count": 1}
    assert cells == [
        full,
        *({**full, "remove": f"blocks.{number}.mlp"} for number in range(3)),
        {**full, "shortcuts.count": 0},
    ]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("blocks.0.mlp", ["blocks.0.mlp"]),
        ("blocks.*.mlp", ["blocks.0.mlp", "blocks.10.mlp"]),
        ("blocks.?.mlp", ["blocks.0.mlp"]),
        ("blocks.*", ["blocks.0", "blocks.10"]),
        ("**.mlp", ["blocks.0.mlp", "blocks.10.mlp"]),
        ("**", ["blocks", "blocks.0", "blocks.0.mlp", "blocks.10", "blocks.10.mlp"]),
        ("mlp", []),
        ("blocks.[1-9]*.mlp", ["blocks.10.mlp"]),
    ],
)
def test_a_pattern_fits_names(pattern: str, names: list[str]) -> None:
    every = ["", "blocks", "blocks.0", "blocks.0.mlp", "blocks.10", "blocks.10.mlp"]
    assert matching(pattern, every) == names


def test_several_parts_and_patterns_at_once() -> None:
    cells = by_part(removing("blocks.0.attn, blocks.*.mlp, blocks.1"))
    cell = cells["blocks.0.attn, blocks.*.mlp, blocks.1"]
    assert cell.cost is not None
    assert cells["none"].cost is not None
    attention, mlp, norms = 4 * 16 * 16 + 4 * 16, 2 * 16 * 32 + 48, 4 * 16
    removed = attention + 2 * mlp + (attention + mlp + norms)
    assert cells["none"].cost.params - cell.cost.params == removed


def test_a_pass_knows_nothing_of_the_pass_before() -> None:
    """Without the first attention, values are those of the second one."""
    factors = "remove: [none, blocks.0.attn], value_residual: [0, 0.5]"
    text = SPACE.replace("remove: [each blocks.*.mlp]", factors)
    cell = planned(text.replace("design: leave-one-out", "design: grid")).cells[-1]
    assert cell.note == ""
    assert cell.architecture is not None
    torch.manual_seed(0)
    model = build(cell.architecture).eval()
    images = torch.randn(2, 3, 1, 8, 8)
    with torch.no_grad():
        alone = [model(images[0]), model(images[1])]
        assert torch.equal(model(images[0]), alone[0])
        model(images[1][:2])
        copied = copy.deepcopy(model)
        assert torch.equal(copied(images[0]), alone[0])
        assert torch.equal(model(images[0]), alone[0])


@pytest.mark.proof
@pytest.mark.parametrize("backbone", ["resnet18", "swin_tiny_patch4_window7_224"])
def test_parts_of_timms_networks(backbone: str) -> None:
    pattern = {"resnet18": "layer*.1"}.get(backbone, "layers.*.blocks.1")
    whole = count(resolve(backbone, 64, 3, 10, {}))
    settings = {"remove": pattern}
    cost = count(resolve(backbone, 64, 3, 10, settings))
    assert 0 < cost.params < whole.params
    assert 0 < cost.flops < whole.flops
    network = build(resolve(backbone, 64, 3, 10, settings)).train()
    network(torch.rand(4, 3, 64, 64)).sum().backward()
    assert all(p.grad is not None for p in network.parameters() if p.requires_grad)


def test_zeros_remove_a_branch() -> None:
    """Without attention and MLP, a block passes its tokens on."""
    sizes = {"size.depth": 1, "size.width": 16, "size.heads": 2, "size.patch_size": 4}
    image = torch.rand(2, 3, 8, 8)
    outputs = []
    for settings in (
        {"remove": "blocks.0.attn, blocks.0.mlp", "remove.becomes": "zeros"},
        {"remove": "blocks.0"},
        {"remove": "blocks.0.attn, blocks.0.mlp"},
    ):
        torch.manual_seed(0)
        network = build(resolve("vit", 8, 3, 10, {**sizes, **settings})).eval()
        assert places_of(network) == () or places_of(network)[0].attention is None
        outputs.append(network(image))
    branch, block, identity = outputs
    assert torch.equal(branch, block)
    assert not torch.equal(identity, block)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (
            "stem",
            "it maps 1 x 8 x 8 to 16 x 4 x 4, so the identity does not fit; write",
        ),
        ("head", "it maps 16 to 10, so the identity does not fit"),
        ("act", "removing act would change nothing: it is the identity already"),
        ("unused", "the network does not call it as a module"),
        ("pair", "it maps 16 x 16 to no tensor"),
        ("atn", "the network has no part 'atn'; did you mean 'attn'?"),
        ("x.y", "its parts are stem, layer, attn, act, unused, pair, head"),
        ("layer.norm1", "without layer.norm1 the network does not run: AttributeError"),
    ],
)
def test_what_does_not_fit_is_refused_in_the_plan(
    use: Use, parts: str, reason: str
) -> None:
    use(OWN)
    text = removing(parts).replace(
        "{family: vit, patch_size: 4, width: 16, depth: 3, heads: 2, mlp_ratio: 2}",
        "mixed",
    )
    cells = by_part(text)
    assert cells["none"].trials
    assert not cells[parts].trials
    assert reason in cells[parts].note


def test_attention_that_returns_a_tuple_is_removed(use: Use) -> None:
    use(OWN)
    network = build(resolve("mixed", 8, 1, 10, {"remove": "attn"}))
    assert network(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    with pytest.raises(Infeasible, match="does not run"):
        build(resolve("mixed", 8, 1, 10, {"remove": "layer.self_attn"}))


def test_a_network_that_cannot_be_tried_is_refused(use: Use) -> None:
    use(
        OWN.replace(
            "        x = self.act", "        assert len(x) == 1\n        x = self.act"
        )
    )
    with pytest.raises(Infeasible, match="does not run on 2 and 3 images"):
        build(resolve("mixed", 8, 1, 10, {"remove": "attn"}))


TIME_FIRST = """
import torch
from torch import nn
import ablate

class TimeFirst(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.emb = nn.Linear(8, 16)
        self.mix = nn.Linear(16, 16)
        self.fold = Fold()
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        x = self.emb(x[:, 0].transpose(0, 1))
        return self.head(self.fold(self.mix(x))[-1])

class Fold(nn.Module):
    def forward(self, x):
        return x.flatten(0, 1).reshape(x.shape)

@ablate.backbone(image_size=8)
def time_first(image_size, channels, classes):
    return TimeFirst(channels, classes)
"""


def test_the_batch_may_be_another_dimension(use: Use) -> None:
    use(TIME_FIRST)
    for parts in ("emb", "mix", "emb, mix"):
        settings = {"remove": parts, "remove.becomes": "zeros"}
        network = build(resolve("time_first", 8, 1, 10, settings))
        assert network(torch.rand(5, 1, 8, 8)).shape == (5, 10)
    with pytest.raises(Infeasible, match="maps 2 x 8 to 2 x 16"):
        build(resolve("time_first", 8, 1, 10, {"remove": "emb"}))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("each blocks.*.mlp", "each blocks.*.mpl", "no part 'blocks.*.mpl'"),
        ("each blocks.*.mlp", "blocks..mlp", "remove: 'blocks..mlp' is not a level"),
        ("each blocks.*.mlp", "3", "remove: 3 is not a level"),
        ("seeds", "fixed: {remove.becomes: one}\nseeds", "identity, zeros"),
    ],
)
def test_a_wrong_level_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        space.load(SPACE.replace(old, new), "own.yaml")
    assert message in str(caught.value)


def test_each_needs_one_backbone() -> None:
    text = SPACE.replace("backbone:", "expect: x\n#").replace(
        "mlp]", "mlp], backbone: [resnet18, resnet34]"
    )
    with pytest.raises(SpaceError, match="`each` is for one backbone"):
        space.load(text, "own.yaml")
