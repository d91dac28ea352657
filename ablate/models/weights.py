"""Weights from a checkpoint.

A network takes what it shares with the checkpoint, resampled if the resolution differs.
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
    """What happened to a network's tensors and to a checkpoint's, by name.

    Attributes:
        taken: copied from the checkpoint unchanged.
        resampled: position embeddings and window biases, interpolated to the network's
            resolution.
        kept: changed by a factor after the backbone took them, such as the first rows
            of a layer made narrower.
        new: randomly initialised: the checkpoint has nothing of that name and shape.
        unused: in the checkpoint, but without a place in the network, or where a factor
            put something else.
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
        lines = [f"{len(self.taken)} tensors taken from the checkpoint"]
        if self.resampled:
            lines += [f"{len(self.resampled)} resampled ({_some(self.resampled)})"]
        if self.kept:
            lines += [f"{len(self.kept)} kept in part ({_some(self.kept)})"]
        lines += [f"{len(self.new)} new ({_some(self.new)})"] if self.new else []
        if self.unused:
            lines += [
                f"{len(self.unused)} of the checkpoint unused ({_some(self.unused)})"
            ]
        return "; ".join(lines)


def _some(names: frozenset[str]) -> str:
    shown = sorted(names)[:4]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "")


def load_weights(
    model: nn.Module, weights: State, before: Loaded | None = None
) -> Loaded:
    """Copies into a network what fits by name and shape, after resampling.

    Args:
        before: what the backbone took before factors changed it.
    """
    if not weights:
        return Loaded()
    # The tensors of a state dict share memory with the network, so copying into them
    # changes the network.
    state = model.state_dict()
    taken = set[str]()
    resampled = set[str]()
    for name, tensor in weights.items():
        if name not in state:
            continue
        fitted = _fitted(name, tensor, state[name])
        if fitted is not None:
            with torch.no_grad():
                state[name].copy_(fitted)
            (taken if fitted is tensor else resampled).add(name)
    # A tensor that the backbone took and that is now missing here was changed by a
    # factor: it was made from the checkpoint and is not new.
    missing = frozenset(state) - taken - resampled
    if before is not None:
        early = before.taken | before.resampled
    else:
        early = frozenset[str]()
    # If a factor replaces a feed-forward network on images, the new one is in a
    # wrapper, one level deeper in the names.
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


def _fitted(name: str, tensor: Tensor, target: Tensor) -> Tensor | None:
    """Returns the tensor in the shape of its place.

    That is the tensor itself, or a resampled one, or None if it does not fit.
    """
    if tensor.shape == target.shape:
        return tensor
    fitted = _resampled(name, tensor, target) if tensor.numel() else None
    if fitted is not None and fitted.shape == target.shape:
        return fitted
    return None


def _resampled(name: str, tensor: Tensor, target: Tensor) -> Tensor | None:
    """Returns the tensor at the place's resolution; None if it cannot be resampled."""
    tensor = tensor.float()
    last = name.rpartition(".")[2]
    if (
        last == "pos_embed"
        and tensor.ndim == target.ndim == 3
        and tensor.shape[::2] == target.shape[::2]
    ):
        return _position_embedding(tensor, target)
    if (
        last == "relative_position_bias_table"
        and tensor.ndim == target.ndim == 2
        and tensor.shape[1] == target.shape[1]
    ):
        from timm.layers import resize_rel_pos_bias_table

        side = (round(target.shape[0] ** 0.5) + 1) // 2
        with warnings.catch_warnings():
            # torch warns about how timm's interpolation indexes: one warning is a
            # deprecation, the other about speed.
            warnings.simplefilter("ignore", UserWarning)
            table: Tensor = resize_rel_pos_bias_table(
                tensor, (side, side), tuple(target.shape)
            )
        return table
    if (
        last == "weight"
        and tensor.ndim == target.ndim == 4
        and tensor.shape[:2] == target.shape[:2]
        and "patch_embed" in name
    ):
        from timm.layers.patch_embed import resample_patch_embed

        kernel: Tensor = resample_patch_embed(tensor, list(target.shape[2:]))
        return kernel
    return None


def _position_embedding(tensor: Tensor, target: Tensor) -> Tensor | None:
    """Interpolates position embeddings over the grid.

    The numbers of prefix tokens follow from the tokens beside the largest square.
    Prefix tokens are taken in their order, the class token first. One that the
    checkpoint does not have keeps the network's position.
    """
    from timm.layers import resample_abs_pos_embed

    old = _square_and_rest(tensor.shape[1])
    new = _square_and_rest(target.shape[1])
    if old is None or new is None:
        return None
    shared = min(old[1], new[1])
    prefix = torch.cat(
        (tensor[:, :shared], target[:, shared : new[1]].to(tensor.dtype)), dim=1
    )
    grid = tensor[:, old[1] :]
    if old[0] != new[0]:
        grid = resample_abs_pos_embed(
            grid, [new[0], new[0]], [old[0], old[0]], num_prefix_tokens=0
        )
    return torch.cat((prefix, grid), dim=1)


def _square_and_rest(tokens: int) -> tuple[int, int] | None:
    """Returns the side of the grid and the number of prefix tokens (at most 5).

    The grid is the largest square that fits.
    """
    side = int(tokens**0.5)
    if tokens - side * side <= 5:
        return (side, tokens - side * side)
    return None


def file_identity(file: Path) -> str:
    """Returns the identity of a file by its content."""
    with file.open("rb") as stream:
        return f"sha256 {hashlib.file_digest(stream, 'sha256').hexdigest()[:20]}"


def read_file(file: Path, key: str = "pretrained") -> State:
    """Returns the tensors of a checkpoint.

    It may be timm's, torch's or safetensors', or that of a trial (its EMA weights if
    there are any).

    Args:
        key: the space's key that names the file, for messages.

    Raises:
        CheckpointError: the file cannot be read without running code, has no tensors by
            name, or claims more data than it has.
    """
    from timm.models import load_state_dict

    _refuse_compressed(file, key)
    try:
        with warnings.catch_warnings():
            # torch warns about types of tensors in old checkpoints.
            warnings.simplefilter("ignore")
            if file.suffix == ".safetensors":
                loaded: Any = load_state_dict(str(file))
            else:
                loaded = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # Pickled code, a truncated file or another format each raise their own type of
        # error.
        raise CheckpointError(
            f"{key}: {file} is no checkpoint that can be read safely:"
            f" {type(error).__name__}; save model.state_dict() again"
        ) from error
    # Averaged weights come first, as in timm's own loader.
    for inner in ("ema", "model_ema", "state_dict_ema", "model", "state_dict"):
        if (
            isinstance(loaded, dict)
            and isinstance(loaded.get(inner), dict)
            and loaded[inner]
        ):
            loaded = loaded[inner]
            break
    if not isinstance(loaded, dict):
        raise CheckpointError(
            f"{key}: {file} holds a {type(loaded).__name__}, not tensors by name; save"
            " model.state_dict()"
        )
    tensors = {
        name: tensor
        for name, tensor in loaded.items()
        if isinstance(name, str) and isinstance(tensor, Tensor)
    }
    if not tensors:
        raise CheckpointError(
            f"{key}: {file} holds no tensors by name; save model.state_dict()"
        )
    for name, tensor in tensors.items():
        _refuse_strange(file, name, tensor, key)
    # DistributedDataParallel puts "module." before every name.
    return {name.removeprefix("module."): tensor for name, tensor in tensors.items()}


def _refuse_compressed(file: Path, key: str) -> None:
    """Raises CheckpointError if a zip archive would unpack to more than itself.

    torch writes checkpoints as uncompressed zip archives.
    """
    if not zipfile.is_zipfile(file):
        return
    try:
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise CheckpointError(
            f"{key}: {file} is no checkpoint that can be read safely:"
            f" {type(error).__name__}; save model.state_dict() again"
        ) from error
    held = file.stat().st_size
    if unpacked > held:
        raise CheckpointError(
            f"{key}: {file} has {held:,} bytes and would unpack to {unpacked:,}; torch"
            " stores checkpoints uncompressed: save it again with torch.save"
        )


def _refuse_strange(file: Path, name: str, tensor: Tensor, key: str) -> None:
    """Raises CheckpointError unless a tensor is dense, real and complete."""
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
    # A tensor with a stride of 0 can claim any shape on a few bytes, and would use up
    # the memory when it is copied.
    held = tensor.untyped_storage().nbytes()
    if tensor.numel() * tensor.element_size() > held:
        raise CheckpointError(
            f"{what} has the shape {list(tensor.shape)}, but the file has only {held:,}"
            " bytes for it; save a contiguous tensor"
        )
