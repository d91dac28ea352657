"""The feed-forward network of IFFN: AGeLUs concatenated, then a depthwise block.

See iffn, sections 4.1 and 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ablate.layers.layout import OnGrid


class RPReLU(nn.Module):
    """A leaky ReLU whose turning point and slope are learnt for each channel.

    `x - gamma + zeta` where x > gamma, else `beta (x - gamma) + zeta` (Liu et al. 2020,
    ReActNet, equation 4). It starts as a PReLU: gamma and zeta are 0, beta is 0.25.

    Shape:
        input and output (..., width).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(width))
        self.zeta = nn.Parameter(torch.zeros(width))
        self.beta = nn.Parameter(torch.full((width,), 0.25))

    def forward(self, x: Tensor) -> Tensor:
        moved = x - self.gamma
        return torch.where(moved > 0, moved, self.beta * moved) + self.zeta


# The activations of iffn, Table 3 and Figure 3.
ACTIVATIONS: dict[str, Callable[[int], nn.Module]] = {
    "gelu": lambda width: nn.GELU(),
    "softplus": lambda width: nn.Softplus(),
    "elu": lambda width: nn.ELU(),
    "swish": lambda width: nn.SiLU(),
    "rprelu": RPReLU,
}


class ArbitraryActivations(nn.Module):
    """N arbitrary nonlinear functions of one input, concatenated (eq. 4 and 5).

    Each is `beta * phi(alpha * x + gamma) + theta` with four parameters per channel,
    initialised to the identity setting 1, 1, 0, 0. With phi = GELU this is the paper's
    AGeLU. The parameters are vectors over (count, width), so that optimisers treat them
    as scales and biases, without weight decay.

    Shape:
        input (..., width), output (..., count * width).
    """

    DECAYS_AS_PUBLISHED: ClassVar[Mapping[str, bool]] = {"alpha": True, "beta": True}
    """The published code gives its scales the shape (1, 1, width), so timm's rule
    decays them, but not its biases.
    """

    def __init__(self, width: int, count: int, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation
        self.count = count
        self.alpha = nn.Parameter(torch.ones(count * width))
        self.beta = nn.Parameter(torch.ones(count * width))
        self.gamma = nn.Parameter(torch.zeros(count * width))
        self.theta = nn.Parameter(torch.zeros(count * width))

    def forward(self, x: Tensor) -> Tensor:
        repeated = torch.cat([x] * self.count, dim=-1)
        inner = torch.addcmul(self.gamma, self.alpha, repeated)
        return torch.addcmul(self.theta, self.beta, self.activation(inner))


class DepthwiseBlock(OnGrid):
    """`x + GELU(BatchNorm(DepthwiseConv(x)))` over the token grid.

    See section 4.3; the residual is that of the published code. Prefix tokens (class,
    register) have no place on the grid and pass unchanged.

    Args:
        width: channels, one kernel each, with bias.
        kernel: odd kernel size n; the grid keeps its size.
        grid: height and width of the token grid.
        prefix: number of prefix tokens before the grid tokens.

    Shape:
        input and output (batch, prefix + height * width, channels).
    """

    def __init__(
        self, width: int, kernel: int, grid: tuple[int, int], prefix: int
    ) -> None:
        super().__init__()
        self.grid, self.prefix = grid, prefix
        self.conv = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        prefix, tokens = x[:, : self.prefix], x[:, self.prefix :]
        image = tokens.transpose(1, 2).reshape(len(x), -1, *self.grid)
        # Tokens are in this order already, except for the gaps that prefix tokens
        # leave. Depthwise convolutions are slower with gaps, and give the same bits.
        image = image.contiguous(memory_format=torch.channels_last)
        spatial = F.gelu(self.norm(self.conv(image))).flatten(2).transpose(1, 2)
        return torch.cat((prefix, tokens + spatial), dim=1)


class FeedForward(nn.Module):
    """fc1, activation, depthwise block, fc2, with the two LayerNorms used with AGeLUs.

    The structure is the one that gives the paper's printed parameters: fc1 -> N AGeLUs
    concatenated -> LayerNorm(C') -> depthwise block -> dropout -> fc2 -> LayerNorm(C)
    -> dropout. The published code has its first dropout before the depthwise block.
    Parts that a setting omits are `nn.Identity`.

    Shape:
        input and output (batch, tokens, channels).
    """

    def __init__(
        self,
        fc1: nn.Linear,
        act: nn.Module,
        norm1: nn.Module,
        depthwise: nn.Module,
        fc2: nn.Linear,
        norm2: nn.Module,
        dropout: float,
        *,
        drop_before_depthwise: bool = False,
    ) -> None:
        super().__init__()
        self.fc1 = fc1
        self.act = act
        self.norm1 = norm1
        self.depthwise = depthwise
        self.drop1 = nn.Dropout(dropout)
        self.fc2, self.norm2 = fc2, norm2
        self.drop2 = nn.Dropout(dropout)
        self.drop_before_depthwise = drop_before_depthwise

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm1(self.act(self.fc1(x)))
        if self.drop_before_depthwise:
            hidden = self.depthwise(self.drop1(hidden))
        else:
            hidden = self.drop1(self.depthwise(hidden))
        output: Tensor = self.drop2(self.norm2(self.fc2(hidden)))
        return output


class SummedActivations(nn.Module):
    """`y = phi_1(x) + ... + phi_n(x)`, element by element (eq. 11, Table 5).

    It replaces a whole feed-forward network. Arbitrary activations have four parameters
    per channel each; alpha is drawn near 1 so that the n functions differ. Plain
    activations are all the same function, so their sum is n phi(x). Terms are summed in
    chunks that are recomputed in the backward pass: all at once, they would need n
    times the memory of the input.

    Shape:
        input and output (batch, tokens, width).
    """

    CHUNK = 16
    DECAYS: ClassVar[Mapping[str, bool]] = dict.fromkeys(
        ("alpha", "beta", "gamma", "theta"), False
    )
    """Scales and biases do not decay, whatever the shape of their tensors."""

    def __init__(
        self, width: int, count: int, activation: nn.Module, arbitrary: bool
    ) -> None:
        super().__init__()
        self.count = count
        self.activation = activation
        self.arbitrary = arbitrary
        if arbitrary:
            self.alpha = nn.Parameter(
                nn.init.trunc_normal_(
                    torch.empty(count, width), mean=1.0, std=0.02, a=0.0, b=2.0
                )
            )
            self.beta = nn.Parameter(torch.ones(count, width))
            self.gamma = nn.Parameter(torch.zeros(count, width))
            self.theta = nn.Parameter(torch.zeros(count, width))

    def _sum(self, x: Tensor, alpha: Tensor, beta: Tensor, gamma: Tensor) -> Tensor:
        inner = torch.addcmul(gamma, alpha, x.unsqueeze(-2))
        summed: Tensor = (beta * self.activation(inner)).sum(-2)
        return summed

    def forward(self, x: Tensor) -> Tensor:
        if not self.arbitrary:
            plain: Tensor = self.count * self.activation(x)
            return plain
        total = self.theta.sum(0).expand_as(x)
        for start in range(0, self.count, self.CHUNK):
            some = slice(start, start + self.CHUNK)
            parameters = (self.alpha[some], self.beta[some], self.gamma[some])
            if torch.is_grad_enabled():
                total = total + checkpoint(
                    self._sum, x, *parameters, use_reentrant=False
                )
            else:
                total = total + self._sum(x, *parameters)
        return total


def linear(layer: nn.Module) -> nn.Linear:
    """Returns a linear layer as it is, and a 1 x 1 convolution as a linear layer."""
    if isinstance(layer, nn.Linear):
        return layer
    assert (
        isinstance(layer, nn.Conv2d)
        and layer.kernel_size == (1, 1)
        and layer.groups == 1
    )
    made = nn.Linear(
        layer.in_channels,
        layer.out_channels,
        bias=layer.bias is not None,
        device=layer.weight.device,
    )
    with torch.no_grad():
        made.weight.copy_(layer.weight.flatten(1))
        if layer.bias is not None:
            made.bias.copy_(layer.bias)
    return made


def narrow(linear: nn.Linear, outputs: int) -> nn.Linear:
    """Returns a linear layer with the first `outputs` rows of another one."""
    narrowed = nn.Linear(
        linear.in_features,
        outputs,
        bias=linear.bias is not None,
        device=linear.weight.device,
    )
    with torch.no_grad():
        narrowed.weight.copy_(linear.weight[:outputs])
        if linear.bias is not None:
            narrowed.bias.copy_(linear.bias[:outputs])
    return narrowed
