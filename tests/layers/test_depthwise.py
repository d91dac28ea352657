"""The memory layout of the depthwise block changes its speed, and no bit."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.layers.ffn import DepthwiseBlock


def as_tokens_lie(block: DepthwiseBlock, x: Tensor) -> Tensor:
    """The block without a layout of its own."""
    prefix, tokens = x[:, : block.prefix], x[:, block.prefix :]
    image = tokens.transpose(1, 2).reshape(len(x), -1, *block.grid)
    spatial = F.gelu(block.norm(block.conv(image))).flatten(2).transpose(1, 2)
    return torch.cat((prefix, tokens + spatial), dim=1)


@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_the_layout_changes_no_bit(kernel: int, prefix: int) -> None:
    torch.manual_seed(0)
    block = DepthwiseBlock(32, kernel, (4, 4), prefix)
    x = torch.randn(3, prefix + 16, 32, requires_grad=True)
    leaves = [x, *block.parameters()]
    found = block(x)
    gradients = torch.autograd.grad(found.square().sum(), leaves)
    expected = as_tokens_lie(block, x)
    others = torch.autograd.grad(expected.square().sum(), leaves)
    assert torch.equal(found, expected)
    for one, other in zip(gradients, others, strict=True):
        assert torch.equal(one, other)
