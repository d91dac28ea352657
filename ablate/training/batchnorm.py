"""Batch norm with statistics over all processes that share a batch."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ablate.errors import ExecutorError

PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def synchronise(model: nn.Module, device: torch.device) -> nn.Module:
    """Returns the network with every batch norm synchronised between processes.

    On a GPU this is torch's batch norm. On the CPU torch has none, so it is ours.
    Parameters and buffers stay the same objects under the same names.

    Raises:
        ExecutorError: on the CPU, a batch norm does more than normalise.
    """
    if device.type == "cuda":
        from timm.layers import convert_sync_batchnorm

        converted: nn.Module = convert_sync_batchnorm(model)
        return converted
    for name, module in model.named_modules():
        if not isinstance(module, _BatchNorm):
            continue
        if type(module) not in PLAIN:
            raise ExecutorError(
                f"{name} is a {type(module).__name__}, which cannot be synchronised"
                " between processes on a CPU; set resources.processes to 1"
            )
        # Changing the class keeps the module, its parameters and its hooks; a
        # replacement would break references to them.
        module.__class__ = SharedBatchNorm
    return model


class SharedBatchNorm(_BatchNorm):
    """Batch norm over the shares that all processes have of a batch.

    Shape:
        (batch, channels, ...) to the same.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return F.batch_norm(
                inputs,
                self.running_mean,
                self.running_var,
                self.weight,
                self.bias,
                # Without running statistics, those of the batch count, as in torch. They
                # are not shared: processes may have different numbers of test batches.
                self.running_mean is None,
                0.0,
                self.eps,
            )
        kind = inputs.dtype
        # Statistics in half precision would lose digits, and would not match the type
        # of the running statistics.
        inputs = inputs.to(torch.promote_types(kind, torch.float32))
        others = [axis for axis in range(inputs.ndim) if axis != 1]
        shape = [1, -1, *([1] * (inputs.ndim - 2))]
        values = torch.tensor(
            float(inputs.numel() // inputs.shape[1]),
            dtype=inputs.dtype,
            device=inputs.device,
        )
        dist.all_reduce(values)
        mean = _total(inputs.sum(dim=others)) / values
        centred = inputs - mean.view(shape)
        # Two passes: subtracting the squared mean from the mean of squares would lose
        # digits.
        variance = _total(centred.square().sum(dim=others)) / values
        self._remember(mean.detach(), variance.detach() * values / (values - 1))
        normalised: Tensor = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            normalised = normalised * self.weight.view(shape) + self.bias.view(shape)
        return normalised.to(kind)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Updates the running statistics as torch's batch norm does."""
        if (
            self.running_mean is None
            or self.running_var is None
            or self.num_batches_tracked is None
        ):
            return
        self.num_batches_tracked.add_(1)
        if self.momentum is None:
            weight = 1 / float(self.num_batches_tracked)
        else:
            weight = self.momentum
        self.running_mean.lerp_(mean, weight)
        self.running_var.lerp_(variance, weight)


class _Total(torch.autograd.Function):
    """The sum over all processes.

    The part of each process affects the loss of every process, so the gradients are
    summed too.
    """

    @staticmethod
    def forward(context: Any, part: Tensor) -> Tensor:
        whole = part.clone()
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return _total(gradient.contiguous())


def _total(part: Tensor) -> Tensor:
    whole: Tensor = _Total.apply(part)
    return whole
