"""The teacher of a trial, and the distillation loss.

See DeiT, arXiv 2012.12877, equations 2 and 3.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate import families
from ablate.errors import Infeasible
from ablate.layers.patch_losses import exact
from ablate.models import build_from
from ablate.models.initial_weights import read_weights
from ablate.models.weights import Loaded, State, load_weights
from ablate.records import Architecture, Data, Recipe, Teacher


class TeacherNetwork(nn.Module):
    """A trained network that only predicts.

    Published weights expect images normalised in their own way: `scale` and `shift`
    convert the trial's images to it.

    Shape:
        (batch, channels, side, side) to logits (batch, classes).
    """

    def __init__(self, network: nn.Module, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.network = network
        self.scale = nn.Buffer(scale)
        self.shift = nn.Buffer(shift)
        self.requires_grad_(False)
        self.eval()

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images * self.scale + self.shift)
        return logits


def build_teacher(teacher: Teacher, data: Data) -> TeacherNetwork:
    """Returns the teacher with its weights, on the CPU.

    Random states do not change.

    Raises:
        CheckpointError: the weights are not available; the message says how to get
            them.
        Infeasible: some weights of the network are missing.
    """
    weights = read_weights(
        teacher.weights, teacher.architecture.backbone, key="teacher"
    )
    network, loaded = with_weights(teacher.architecture, weights)
    if loaded.new:
        raise Infeasible(
            "teacher: the weights are of another network than"
            f" {teacher.architecture.backbone}: {loaded}"
        )
    scale = torch.ones(1)
    shift = torch.zeros(1)
    if not teacher.weights.path:
        scale, shift = _renormalised(teacher.architecture.backbone, data)
    return TeacherNetwork(network, scale, shift)


def with_weights(
    architecture: Architecture, weights: State
) -> tuple[nn.Module, Loaded]:
    """Returns a network with the weights, and what was taken of them.

    The network belongs to one of ablate's families, or is any other model of timm.
    """
    with torch.random.fork_rng(devices=[]):
        if families.is_known(architecture.backbone):
            return build_from(architecture, weights)
        import timm

        shape = {"in_chans": architecture.channels, "num_classes": architecture.classes}
        try:
            network = timm.create_model(
                architecture.backbone, img_size=architecture.image_size, **shape
            )
        except TypeError:
            # This network accepts images of any size.
            network = timm.create_model(architecture.backbone, **shape)
        return network, load_weights(network, weights)


@torch.no_grad()
def problem_with(network: nn.Module, architecture: Architecture) -> str:
    """Returns why a network cannot classify a trial's images; empty if it can."""
    side = architecture.image_size
    try:
        logits = network.eval()(torch.zeros(1, architecture.channels, side, side))
    except Exception as error:
        # Each network raises its own type of error.
        return (
            f"{architecture.backbone} cannot read images of {side} x {side} pixels:"
            f" {error}"
        )
    if not isinstance(logits, Tensor) or logits.shape != (1, architecture.classes):
        return (
            f"{architecture.backbone} gives no logits of {architecture.classes} classes"
        )
    return ""


def _renormalised(backbone: str, data: Data) -> tuple[Tensor, Tensor]:
    """Returns the scale and shift to the normalisation of timm's weights.

    Each is (channels, 1, 1) and starts from the trial's normalisation.
    """
    from timm.models import get_pretrained_cfg

    from ablate.data.images import normalisation

    published = get_pretrained_cfg(backbone)
    assert published is not None
    mean, std = (torch.tensor(values)[:, None, None] for values in normalisation(data))
    wanted_mean, wanted_std = (
        torch.tensor(values)[:, None, None]
        for values in (published.mean, published.std)
    )
    return std / wanted_std, (mean - wanted_mean) / wanted_std


def separate_heads(model: nn.Module) -> None:
    """Makes a network with a distillation token return the logits of both heads.

    It does so in training; otherwise it would return their mean.
    """
    separate = getattr(model, "set_distilled_training", None)
    if separate is not None:
        separate(True)


class Distillation(nn.Module):
    """The loss of a network that learns from labels and from a teacher.

    It is `(1 - share) * loss(logits, labels) + share * teaching`. A network with a
    distillation token returns two kinds of logits: the first is for the labels, the
    second for the teacher.

    `teaching` is, with the temperature T:

    - `soft`: T^2 times the Kullback-Leibler divergence of the network's probabilities
      from the teacher's, the mean over images.
    - `soft-code`: the same divided by the number of classes, as in DeiT's published
      code.
    - `hard`: the cross-entropy with the class that the teacher predicts.

    Args:
        loss: returns the mean over images from logits and labels.
    """

    def __init__(self, loss: nn.Module, recipe: Recipe) -> None:
        super().__init__()
        self.loss = loss
        self.kind = recipe.distillation
        self.share = recipe.distillation_share
        self.temperature = recipe.distillation_temperature

    def forward(
        self, logits: Tensor | tuple[Tensor, Tensor], labels: Tensor, taught: Tensor
    ) -> Tensor:
        if isinstance(logits, tuple):
            of_student, of_teacher = logits
        else:
            of_student, of_teacher = (logits, logits)
        of_labels: Tensor = self.loss(of_student, labels)
        return (1 - self.share) * of_labels + self.share * self._teaching(
            of_teacher, taught
        )

    def _teaching(self, logits: Tensor, taught: Tensor) -> Tensor:
        logits = exact(logits)
        taught = exact(taught)
        if self.kind == "hard":
            return F.cross_entropy(logits, taught.argmax(dim=1))
        log_probabilities = F.log_softmax(logits / self.temperature, dim=1)
        targets = F.log_softmax(taught / self.temperature, dim=1)
        divergence = F.kl_div(
            log_probabilities, targets, reduction="batchmean", log_target=True
        )
        per_class = logits.shape[1] if self.kind == "soft-code" else 1
        return divergence * self.temperature**2 / per_class
