"""Image classification: mixed labels, patch terms, a teacher, and top-1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ablate.data.batches import batches, first_images
from ablate.data.share import Share
from ablate.layers.patch_losses import Regions
from ablate.learning.augmentation import Augmentation, own_augmentation
from ablate.learning.loss import mixer, training_loss
from ablate.learning.own_metrics import metrics_of
from ablate.learning.patches import PatchTerms, mix_on_grid
from ablate.learning.teacher import Distillation, build_teacher, separate_heads
from ablate.learning.work import Batch, Evaluating, Measure, Part
from ablate.records import Trial


class Step(nn.Module):
    """Network, loss and patch terms as one module, from a batch to its loss.

    Several processes share the gradient of this module. `taught` has a teacher's
    logits; the loss uses them if the network learns from a teacher.
    """

    def __init__(self, model: nn.Module, loss: nn.Module, terms: PatchTerms) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.terms = terms

    def forward(
        self,
        inputs: Tensor,
        labels: Tensor,
        patches: Tensor | Regions | None,
        taught: Tensor | None,
    ) -> Tensor:
        logits = self.model(inputs)
        targets = (labels,) if taught is None else (labels, taught)
        loss: Tensor = self.loss(logits, *targets) + self.terms(patches)
        return loss


class Classification:
    """The work of one trial of image classification. See `ablate.learning.work`."""

    step: Step
    extra: PatchTerms

    def __init__(
        self,
        trial: Trial,
        device: torch.device,
        share: Share,
        measures: Sequence[Measure],
    ) -> None:
        self._trial = trial
        self._measures = measures
        self._recipe = trial.recipe
        self._device = device
        self._own_metrics = metrics_of(trial)
        self.batches = batches(trial.data, trial.recipe, device, share)
        self.updates = self.batches.updates
        self.mix = mixer(trial.recipe, trial.data.classes)
        self.teacher: nn.Module | None = None

    def attach(self, model: nn.Module) -> None:
        terms = PatchTerms(self._trial.architecture, model).to(self._device)
        loss = training_loss(self._recipe, offset=terms.mixes_patches)
        loss = loss.to(self._device)
        if self._trial.teacher is not None:
            teacher = build_teacher(self._trial.teacher, self._trial.data)
            self.teacher = teacher.to(self._device)
            loss = Distillation(loss, self._recipe)
            separate_heads(model)
        self.extra = terms
        self.step = Step(model, loss, terms)

    def begin_epoch(self, epoch: int) -> None:
        if self.mix is not None:
            self.mix.mixup_enabled = not 0 < self._recipe.mixup_off_epoch <= epoch

    def train(self, order: torch.Generator) -> Iterator[Batch]:
        own = own_augmentation(self._recipe)
        augment = None if own is None else Augmentation(own, order)
        for inputs, labels in self.batches.train(order):
            images = inputs if augment is None else augment(inputs)
            yield self.batch(images, labels)

    def batch(self, inputs: Tensor, labels: Tensor) -> Batch:
        """Mixes a batch if the recipe does, and parts it as the recipe says."""
        images = len(inputs)
        patches: Tensor | Regions | None = None
        if self.mix is not None:
            # Mixing needs pairs, so an odd image is left out.
            even = len(inputs) // 2 * 2
            classes, unmixed = self._trial.data.classes, labels[:even]
            inputs, labels = self.mix(inputs[:even], unmixed)
            if self.extra.mixes_patches:
                inputs, labels, patches = mix_on_grid(inputs, labels, self.extra.grid)
            elif self.extra.terms:
                patches = self.mix.patch_labels(unmixed, classes, self.extra.grid)
        count = min(self._recipe.accumulate, len(inputs))
        pieces = zip(
            inputs.tensor_split(count),
            labels.tensor_split(count),
            _parts_of(patches, count),
            strict=True,
        )
        # Parts may differ by one image.
        parts = [Part(piece, len(piece[0]) / len(inputs)) for piece in pieces]
        return Batch(tuple(parts), images)

    def arguments(self, part: Part) -> tuple[Any, ...]:
        images, labels, patches = part.inputs
        taught = None if self.teacher is None else self.teacher(images)
        return images, labels, patches, taught

    def evaluate(
        self, model: nn.Module, tools: Evaluating, *, validation: bool
    ) -> dict[str, float]:
        sums = torch.zeros(
            len(self._measures), dtype=torch.float64, device=self._device
        )
        images = 0
        all_logits: list[Tensor] = []
        all_labels: list[Tensor] = []
        for inputs, labels in self.batches.test(validation=validation):
            tools.beat()
            with tools.autocast():
                logits = model(inputs)
            sums += self.sums(logits, labels)
            images += len(labels)
            if tools.correct is not None:
                tools.correct(logits.argmax(dim=1) == labels)
            if self._own_metrics:
                all_logits.append(logits.float().cpu())
                all_labels.append(labels.cpu())
        sums, images = tools.total(sums, images)
        means = (sums / images).tolist()
        measured = {
            measure.metric.name: measure.times * mean
            for measure, mean in zip(self._measures, means, strict=True)
        }
        for metric in self._own_metrics:
            measured[metric.name] = metric(torch.cat(all_logits), torch.cat(all_labels))
        return measured

    def sums(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns what each measure adds up over a batch: float64 (measures)."""
        logits = logits.float()
        sums = [measure.sum(logits, labels) for measure in self._measures]
        return torch.stack([total.double() for total in sums])

    def first_images(self, count: int) -> Iterator[Tensor]:
        return first_images(self.batches, count)


def _parts_of(
    patches: Tensor | Regions | None, count: int
) -> Sequence[Tensor | Regions | None]:
    """Returns the labels of patches for each part of a batch."""
    if patches is None:
        return [None] * count
    if isinstance(patches, Regions):
        labels = zip(
            patches.own.tensor_split(count),
            patches.other.tensor_split(count),
            strict=True,
        )
        return [Regions(patches.mask, label, other) for label, other in labels]
    return patches.tensor_split(count)
