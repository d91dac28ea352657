"""Weights from a checkpoint: what a network shares with it, resampled where the
resolution differs.
"""

from __future__ import annotations

import hashlib
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ablate.errors import CheckpointError, shortened

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Loaded:
    """What became of a network's tensors and a checkpoint's, by name.

    Attributes:
        taken: as they are in the checkpoint.
        resampled: position embeddings and window biases, interpolated to the network's
            resolution.
        kept: changed by a factor after the backbone had taken them, as the first rows
            of a layer made narrower.
        new: initialised anew: the checkpoint has nothing of that name and shape.
        unused: in the checkpoint, without a place in the network, or where a factor put
            something else.
    """

    taken: frozenset[str] = frozenset()
    resampled: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()

    @property
    def share(self) -> float:
        """Share of the network's tensors that come from the checkpoint."""
        some = len(self.taken | self.resampled | self.kept)
        return some / max(1, some + len(self.new))

    def __str__(self) -> str:
        told = [f"{len(self.taken)} tensors taken from the checkpoint"]
        if self.resampled:
            told += [f"{len(self.resampled)} resampled ({_some(self.resampled)})"]
        if self.kept:
            told += [f"{len(self.kept)} kept in part ({_some(self.kept)})"]
        told += [f"{len(self.new)} new ({_some(self.new)})"] if self.new else []
        if self.unused:
            told += [
                f"{len(self.unused)} of the checkpoint unused ({_some(self.unused)})"
            ]
        return "; ".join(told)


def _some(names: frozenset[str]) -> str:
    shown = sorted(names)[:4]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "")


def take(model: nn.Module, weights: State, before: Loaded | None = None) -> Loaded:
    """Copies into a network whatever fits by name and shape, after resampling.

    Args:
        before: what the backbone took before factors changed it.
    """
    if not weights:
        return Loaded()
    own = model.state_dict()
    taken = set[str]()
    resampled = set[str]()
    for name, tensor in weights.items():
        if name not in own:
            continue
        fitted = _fitted(name, tensor, own[name])
        if fitted is not None:
            with torch.no_grad():
                own[name].copy_(fitted)
            (taken if fitted is tensor else resampled).add(name)
    missing = frozenset(own) - taken - resampled
    if before is not None:
        early = before.taken | before.resampled
    else:
        early = frozenset[str]()
    # A feed-forward network on images that a factor replaced stands in a wrapper, one
    # name deeper.
    kept = frozenset(name for name in missing if name.replace(".module.", ".") in early)
    unused = (
        frozenset(weights)
        - taken
        - resampled
        - {name.replace(".module.", ".") for name in kept}
    )
    return Loaded(
        taken=frozenset(taken),
        resampled=frozenset(resampled),
        kept=kept,
        new=missing - kept,
        unused=unused,
    )


def _fitted(name: str, tensor: Tensor, place: Tensor) -> Tensor | None:
    """The tensor in the place's shape: itself, resampled, or None where it is something
    else.
    """
    if tensor.shape == place.shape:
        return tensor
    fitted = _resampled(name, tensor, place) if tensor.numel() else None
    if fitted is not None and fitted.shape == place.shape:
        return fitted
    return None


def _resampled(name: str, tensor: Tensor, place: Tensor) -> Tensor | None:
    """The tensor interpolated to the place's resolution, or None where it has none."""
    tensor = tensor.float()
    last = name.rpartition(".")[2]
    if (
        last == "pos_embed"
        and tensor.ndim == place.ndim == 3
        and tensor.shape[::2] == place.shape[::2]
    ):
        return _position_embedding(tensor, place)
    if (
        last == "relative_position_bias_table"
        and tensor.ndim == place.ndim == 2
        and tensor.shape[1] == place.shape[1]
    ):
        from timm.layers import resize_rel_pos_bias_table

        side = (round(place.shape[0] ** 0.5) + 1) // 2
        with warnings.catch_warnings():
            # torch deprecates how timm's interpolation indexes, and tells it that it
            # could be quicker.
            warnings.simplefilter("ignore", UserWarning)
            table: Tensor = resize_rel_pos_bias_table(
                tensor, (side, side), tuple(place.shape)
            )
        return table
    if (
        last == "weight"
        and tensor.ndim == place.ndim == 4
        and tensor.shape[:2] == place.shape[:2]
        and "patch_embed" in name
    ):
        from timm.layers.patch_embed import resample_patch_embed

        kernel: Tensor = resample_patch_embed(tensor, list(place.shape[2:]))
        return kernel
    return None


def _position_embedding(tensor: Tensor, place: Tensor) -> Tensor | None:
    """Interpolated over the grid; the numbers of prefix tokens follow from both being
    squares beside them.

    Prefix tokens are taken in their order, the class token first. One that the
    checkpoint has not keeps the network's position.
    """
    from timm.layers import resample_abs_pos_embed

    old = _square_and_rest(tensor.shape[1])
    new = _square_and_rest(place.shape[1])
    if old is None or new is None:
        return None
    shared = min(old[1], new[1])
    prefix = torch.cat(
        (tensor[:, :shared], place[:, shared : new[1]].to(tensor.dtype)), dim=1
    )
    grid = tensor[:, old[1] :]
    if old[0] != new[0]:
        grid = resample_abs_pos_embed(
            grid, [new[0], new[0]], [old[0], old[0]], num_prefix_tokens=0
        )
    return torch.cat((prefix, grid), dim=1)


def _square_and_rest(tokens: int) -> tuple[int, int] | None:
    """Side of the grid, and number of prefix tokens (at most 5): the largest square
    that fits.
    """
    side = int(tokens**0.5)
    if tokens - side * side <= 5:
        return (side, tokens - side * side)
    return None


def file_identity(file: Path) -> str:
    """A file by its content."""
    with file.open("rb") as stream:
        return f"sha256 {hashlib.file_digest(stream, 'sha256').hexdigest()[:20]}"


def read_file(file: Path, key: str = "pretrained") -> State:
    """The tensors of a checkpoint: timm's, torch's or safetensors', or a trial's own
    (its EMA weights where it has them).

    Args:
        key: the space's key that names the file, for messages.

    Raises:
        CheckpointError: it cannot be read without running code, holds no tensors by
            name, or claims more than it holds.
    """
    from timm.models import load_state_dict

    _refuse_compressed(file, key)
    try:
        with warnings.catch_warnings():
            # torch deprecates kinds of tensors that old checkpoints have.
            warnings.simplefilter("ignore")
            if file.suffix == ".safetensors":
                found: Any = load_state_dict(str(file))
            else:
                found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # Pickled code, a cut file, another format: each raises its own kind.
        raise CheckpointError(
            f"{key}: {file} is no checkpoint that can be read safely:"
            f" {type(error).__name__}"
        ) from error
    for inner in ("ema", "model_ema", "state_dict_ema", "model", "state_dict"):
        if (
            isinstance(found, dict)
            and isinstance(found.get(inner), dict)
            and found[inner]
        ):
            found = found[inner]
            break
    if not isinstance(found, dict):
        raise CheckpointError(
            f"{key}: {file} holds a {type(found).__name__}, not tensors by name; save"
            " model.state_dict()"
        )
    tensors = {
        name: tensor
        for name, tensor in found.items()
        if isinstance(name, str) and isinstance(tensor, Tensor)
    }
    if not tensors:
        raise CheckpointError(
            f"{key}: {file} holds no tensors by name; save model.state_dict()"
        )
    for name, tensor in tensors.items():
        _refuse_strange(file, name, tensor, key)
    return {name.removeprefix("module."): tensor for name, tensor in tensors.items()}


def _refuse_compressed(file: Path, key: str) -> None:
    """Raises CheckpointError where a zip archive, as torch writes them, would unpack to
    more than the file.
    """
    if not zipfile.is_zipfile(file):
        return
    try:
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise CheckpointError(
            f"{key}: {file} is no checkpoint that can be read safely:"
            f" {type(error).__name__}"
        ) from error
    held = file.stat().st_size
    if unpacked > held:
        raise CheckpointError(
            f"{key}: {file} has {held:,} bytes and would unpack to {unpacked:,}; torch"
            " stores checkpoints uncompressed: save it again with torch.save"
        )


def _refuse_strange(file: Path, name: str, tensor: Tensor, key: str) -> None:
    """Raises CheckpointError unless a tensor is dense, of real numbers, and all of it
    is in the file.
    """
    what = f"{key}: {shortened(name)} in {file}"
    if (
        tensor.layout != torch.strided
        or tensor.is_quantized
        or tensor.is_nested
        or tensor.is_complex()
        or tensor.is_meta
    ):
        if tensor.is_meta:
            kind = "on the meta device"
        else:
            kind = f"{tensor.dtype}, {tensor.layout}"
        raise CheckpointError(
            f"{what} is {kind}; weights must be dense tensors of real numbers"
        )
    held = tensor.untyped_storage().nbytes()
    if tensor.numel() * tensor.element_size() > held:
        raise CheckpointError(
            f"{what} claims the shape {list(tensor.shape)}, but the file holds {held:,}"
            " bytes of it; save a contiguous tensor"
        )
