"""Observes a network while it classifies images, and takes diagnostics by layer."""

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
    """Returns the means of diagnostics over images, for each layer.

    A copy of the network is observed in evaluation mode, with attention computed step
    by step. The network itself does not change, and no random number is drawn.

    Args:
        images: batches (n, channels, side, side), on the network's device.

    Raises:
        UnknownName: there is no such diagnostic.
        DiagnosticError: one cannot be taken here.
    """
    chosen = [find(name) for name in names]
    eye = _Eye(copy.deepcopy(model).eval(), backbone)
    sums: dict[tuple[str, int], Tensor] = {}
    counts: dict[tuple[str, int], int] = {}
    with torch.no_grad():
        for batch in images:
            for index, layer in enumerate(eye.see(batch)):
                for diagnostic in chosen:
                    for ending, values in diagnostic.measure(layer).items():
                        key = (
                            (
                                f"{diagnostic.name}.{ending}"
                                if ending
                                else diagnostic.name
                            ),
                            index,
                        )
                        total = values.double().sum(0)
                        sums[key] = sums[key] + total if key in sums else total
                        counts[key] = counts.get(key, 0) + len(values)
    taken = tuple(
        _measurement(epoch, key, total / counts[key])
        for key, total in sorted(sums.items())
    )
    # A diagnostic that this network does not have gets layer -1, which records that it
    # was taken.
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
    """Rounds numbers, or rows of numbers, to five significant digits."""
    if numbers and isinstance(numbers[0], list):
        return [_rounded(row) for row in numbers]
    return [float(f"{number:.5g}") for number in numbers]


class _Eye:
    """Hooks on every block of a network."""

    def __init__(self, model: nn.Module, backbone: str) -> None:
        self._model = model
        family = families.find(backbone)
        # Blocks without grid tokens have nothing to observe.
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

    def see(self, images: Tensor) -> list[Layer]:
        """Returns the layers for a batch of images."""
        self._model(images)
        return [
            Layer(
                tokens=self._tokens[index],
                attention=self._seen.get(index),
                ffn=self._ffn.get(index),
                grid=place.site.grid,
            )
            for index, place in enumerate(self._places)
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
