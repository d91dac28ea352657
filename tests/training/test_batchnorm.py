"""Batch norm over all processes of a trial, against torch's on the whole batch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ablate.errors import ExecutorError
from ablate.training.batchnorm import SharedBatchNorm, synchronise
from tests.processes import ended

CPU = torch.device("cpu")
# Batch sizes of the processes: the shares need not be equal.
SHARES = (3, 5)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of this process only."""
    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1
    )
    yield
    dist.destroy_process_group()


def norm(kind: type[nn.Module], **options: Any) -> nn.Module:
    torch.manual_seed(1)
    # In double precision, the two ways agree to many digits.
    made = kind(4, dtype=torch.float64, **options)
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


def images(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    # Far from zero, where one pass over the squares would lose digits.
    return 100 + torch.randn(shape, generator=generator, dtype=torch.float64)


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name])


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (nn.BatchNorm1d, (8, 4)),
        (nn.BatchNorm1d, (8, 4, 5)),
        (nn.BatchNorm2d, (8, 4, 5, 6)),
        (nn.BatchNorm3d, (8, 4, 2, 3, 3)),
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": None},
        {"momentum": 0.3, "eps": 0.1},
        {"affine": False},
        {"track_running_stats": False},
    ],
)
def test_one_process_does_what_torch_does(
    kind: type[nn.Module], shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    theirs = norm(kind, **options)
    ours = synchronise(norm(kind, **options), CPU)
    assert type(ours) is SharedBatchNorm
    for step in range(2):
        mine = (images(*shape) + step).requires_grad_()
        other = mine.detach().clone().requires_grad_()
        after_ours, after_theirs = ours(mine), theirs(other)
        torch.testing.assert_close(after_ours, after_theirs)
        weights = images(*shape)
        (after_ours * weights).sum().backward()
        (after_theirs * weights).sum().backward()
        torch.testing.assert_close(mine.grad, other.grad)
    same(state(ours), state(theirs))
    ours.eval()
    theirs.eval()
    torch.testing.assert_close(ours(images(*shape)), theirs(images(*shape)))


@pytest.mark.usefixtures("alone")
def test_statistics_of_half_precision_are_exact() -> None:
    ours = synchronise(nn.BatchNorm1d(4), CPU)
    batch = images(8, 4).bfloat16()
    after = ours(batch)
    assert after.dtype == torch.bfloat16
    assert ours.running_mean.dtype == torch.float32
    expected = 0.1 * batch.float().mean(dim=0)
    torch.testing.assert_close(ours.running_mean, expected)


def test_the_network_stays_the_same_object() -> None:
    network = nn.Sequential(nn.Linear(4, 4), norm(nn.BatchNorm1d), nn.ReLU())
    before = dict(network.named_parameters())
    buffers = dict(network.named_buffers())
    assert synchronise(network, CPU) is network
    assert all(before[name] is one for name, one in network.named_parameters())
    assert all(buffers[name] is one for name, one in network.named_buffers())
    assert type(network[0]) is nn.Linear


def test_a_norm_that_does_more_is_refused() -> None:
    class Scaled(nn.BatchNorm1d):
        pass

    network = nn.Sequential(nn.Linear(4, 4), Scaled(4))
    with pytest.raises(ExecutorError, match="1 is a Scaled, .* resources.processes"):
        synchronise(network, CPU)


def share(rank: int, folder: str) -> None:
    """What one of two processes does with its share of a batch."""
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=len(SHARES)
    )
    batch = images(sum(SHARES), 4).split(SHARES)[rank].clone().requires_grad_()
    ours = synchronise(norm(nn.BatchNorm1d), CPU)
    after = ours(batch)
    weights = (images(sum(SHARES), 4) ** 2).split(SHARES)[rank]
    (after * weights).sum().backward()
    result = {"after": after.detach(), "gradient": batch.grad, **state(ours)}
    torch.save(result, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.proof
def test_two_processes_do_what_one_does_with_the_whole_batch(tmp_path: Path) -> None:
    # Not by multiprocessing, whose own helper process would outlive this test.
    program = "from tests.training.test_batchnorm import share; share({}, {!r})"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program.format(rank, str(tmp_path))],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for rank in range(len(SHARES))
    ]
    with ended(running[0]), ended(running[1]):
        assert [one.wait(120) for one in running] == [0, 0]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    whole = images(sum(SHARES), 4).requires_grad_()
    theirs = norm(nn.BatchNorm1d)
    after = theirs(whole)
    (after * images(sum(SHARES), 4) ** 2).sum().backward()
    both = torch.cat((first["after"], second["after"]))
    torch.testing.assert_close(both, after.detach())
    gradients = torch.cat((first["gradient"], second["gradient"]))
    torch.testing.assert_close(gradients, whole.grad)
    for name, value in state(theirs).items():
        torch.testing.assert_close(first[name], value)
        torch.testing.assert_close(second[name], value)
