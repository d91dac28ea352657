"""Operators that torch hides from a trace, and rules of users for operators."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import ablate
from ablate.cost.count import cost_of
from ablate.errors import UncountedOperator
from ablate.own import registry

WIDTH, HIDDEN, TOKENS = 64, 128, 10


def layer() -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(WIDTH, 4, HIDDEN, batch_first=True)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.attention(tokens, tokens, tokens)[0]
        return output


ATTENTION = 4 * TOKENS * WIDTH**2 + 2 * TOKENS**2 * WIDTH
# The convention of norms: five operations per element.
LAYER = ATTENTION + 2 * TOKENS * WIDTH * HIDDEN + 2 * 5 * TOKENS * WIDTH


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Attention, ATTENTION),
        (layer, LAYER),
        (lambda: nn.TransformerEncoder(layer(), 2), 2 * LAYER),
    ],
)
def test_attention_of_torch_is_counted(make: type, expected: int) -> None:
    assert torch.backends.mha.get_fastpath_enabled()
    cost = cost_of(make().eval(), torch.zeros(1, TOKENS, WIDTH))
    assert cost.flops == expected
    assert torch.backends.mha.get_fastpath_enabled()


class Sorted(nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image.sort(dim=-1).values


RULE = """
import ablate


@ablate.operator("aten::sort")
def sort(inputs, outputs):
    batch, width = inputs[0]
    return BODY
"""


def test_a_user_adds_the_rule_of_an_operator(tmp_path: Path) -> None:
    image = torch.zeros(2, 8)
    with pytest.raises(UncountedOperator, match=r"@ablate\.operator\('aten::sort'\)"):
        cost_of(Sorted(), image)
    file = tmp_path / "rules.py"
    file.write_text(RULE.replace("BODY", "3 * batch * width"))
    registry.load_file(file)
    assert cost_of(Sorted(), image).flops == 3 * 2 * 8
    for body, message in (("-1", "returns -1.0"), ("1 / 0", "fails with the shapes")):
        file.write_text(RULE.replace("BODY", body))
        registry.load_file(file)
        with pytest.raises(UncountedOperator, match=message):
            cost_of(Sorted(), image)


def test_a_changed_rule_counts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "rules.py"
    model = (
        "\n@ablate.backbone(image_size=8, revision=1)\ndef net(image_size, channels, classes):\n"
        "    from torch import nn\n"
        "    class Net(nn.Module):\n"
        "        def __init__(self):\n"
        "            super().__init__()\n"
        "            self.head = nn.Linear(64, classes)\n"
        "        def forward(self, x):\n"
        "            return self.head(x.flatten(1).sort(dim=-1).values)\n"
        "    return Net()\n"
    )
    space = {
        "name": "own",
        "question": "Q?",
        "backbone": "net",
        "factors": {"recipe.lr": [1e-3, 2e-3]},
        "seeds": 1,
        "data": "digits",
        "recipe": {"epochs": 1, "warmup_epochs": 0},
    }
    for times in (3, 5):
        file.write_text(RULE.replace("BODY", f"{times} * width") + model)
        registry.load_file(file)
        study = ablate.run(space, executor="inline")
        assert study.results_table().data[0]["flops"] == 640 + times * 64
