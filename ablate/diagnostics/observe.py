"""Looks on while a network classifies images, layer by layer, and takes diagnostics."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ablate import families
from ablate.diagnostics import find
from ablate.diagnostics.diagnostic import Layer
from ablate.families.family import BlockPlace
from ablate.layers.attention import EditableAttention, Seen
from ablate.layers.layout import OnTokens, to_tokens
from ablate.models import make_editable, places_of
from ablate.records import Measurement


def measure(
    model: nn.Module,
    backbone: str,
    images: Iterable[Tensor],
    names: Sequence[str],
    epoch: int = 0,
) -> tuple[Measurement, ...]:
    """Means over images of diagnostics, for each layer.

    The network is looked at as a copy in evaluation mode with attention computed step
    by step; it stays as it is, and no random number is drawn.

    Args:
        images: batches (n, channels, side, side), on the network's device.

    Raises:
        UnknownName: there is no such diagnostic.
        DiagnosticError: one cannot be taken here.
    """
    wanted = [find(name) for name in names]
    eye = _Eye(copy.deepcopy(model).eval(), backbone)
    sums: dict[tuple[str, int], Tensor] = {}
    counts: dict[tuple[str, int], int] = {}
    with torch.no_grad():
        for batch in images:
            for index, layer in enumerate(eye.look(batch)):
                for diagnostic in wanted:
                    for ending, found in diagnostic.measure(layer).items():
                        key = (
                            (
                                f"{diagnostic.name}.{ending}"
                                if ending
                                else diagnostic.name
                            ),
                            index,
                        )
                        total = found.double().sum(0)
                        sums[key] = sums[key] + total if key in sums else total
                        counts[key] = counts.get(key, 0) + len(found)
    taken = tuple(
        _measurement(epoch, key, total / counts[key])
        for key, total in sorted(sums.items())
    )
    # That a network has nothing of a kind is known too: layer -1 says that it was
    # looked for.
    seen = {measurement.name.partition(".")[0] for measurement in taken}
    return taken + tuple(
        Measurement(epoch=epoch, name=name, layer=-1, value=None)
        for name in names
        if name not in seen
    )


def _measurement(epoch: int, key: tuple[str, int], mean: Tensor) -> Measurement:
    name, layer = key
    if mean.ndim == 0:
        return Measurement(epoch=epoch, name=name, layer=layer, value=float(mean))
    return Measurement(
        epoch=epoch,
        name=name,
        layer=layer,
        value=None,
        values=tuple(_rounded(mean.tolist())),
    )


def _rounded(numbers: list[Any]) -> list[Any]:
    """Numbers, or rows of numbers, to five digits."""
    if numbers and isinstance(numbers[0], list):
        return [_rounded(row) for row in numbers]
    return [float(f"{number:.5g}") for number in numbers]


class _Eye:
    """Hooks on every block of a network."""

    def __init__(self, model: nn.Module, backbone: str) -> None:
        self._model = model
        family = families.find(backbone)
        # Blocks that no grid token passes have nothing to look at.
        self._places = [
            place for place in places_of(model) if place.site.grid != (0, 0)
        ]
        self._tokens: dict[int, Tensor] = {}
        self._seen: dict[int, tuple[EditableAttention, Seen]] = {}
        self._ffn: dict[int, tuple[nn.Module, Tensor]] = {}
        for index, place in enumerate(self._places):
            model.get_submodule(place.name).register_forward_hook(
                partial(self._leave, index, place)
            )
            if place.attention is not None:
                attention = make_editable(model, family, place)
                attention.observer = partial(self._attend, index, attention)
            if place.ffn is not None:
                model.get_submodule(f"{place.name}.{place.ffn}").register_forward_hook(
                    partial(self._feed, index, place)
                )

    def look(self, images: Tensor) -> list[Layer]:
        """The layers that a batch of images goes through."""
        self._model(images)
        return [
            Layer(self._tokens[i], self._seen.get(i), self._ffn.get(i))
            for i in range(len(self._places))
        ]

    def _leave(
        self,
        index: int,
        place: BlockPlace,
        module: nn.Module,
        inputs: Any,
        output: Tensor,
    ) -> None:
        self._tokens[index] = to_tokens(output, place.layout)[:, place.site.prefix :]

    def _attend(self, index: int, attention: EditableAttention, seen: Seen) -> None:
        self._seen[index] = (attention, seen)

    def _feed(
        self,
        index: int,
        place: BlockPlace,
        module: nn.Module,
        inputs: tuple[Tensor, ...],
        output: Tensor,
    ) -> None:
        inside = module.module if isinstance(module, OnTokens) else module
        self._ffn[index] = (inside, to_tokens(inputs[0], place.ffn_layout))
