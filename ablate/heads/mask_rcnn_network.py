"""The network of the head `mask-rcnn`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import TwoMLPHead
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.ops import MultiScaleRoIAlign

from ablate.backbones.features import FeatureMaps
from ablate.heads.padding import Objects, Sizes, sizes_of
from ablate.heads.pyramid_network import Neck
from ablate.heads.sizes import MaskRCNNSize

# The scales of the second stage; the coarsest map is for proposals only.
SCALES = ["0", "1", "2", "3"]
# Sides of the anchors on a map, in strides of this map.
ANCHOR = 8
# Boxes whose masks a cost counts: as many as are kept of an image.
MASKS = 100


class _Channels(nn.Module):
    """Stands in place of the backbone while torchvision builds the two stages."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.out_channels = channels


class MaskRCNNNetwork(nn.Module):
    """Mask R-CNN on the feature maps of a backbone.

    Shape:
        images (batch, channels, height, width), normalised and padded, to the objects
        of each image.

    Attributes:
        places: the blocks of the backbone, by their names in this network.
    """

    def __init__(self, features: FeatureMaps, classes: int, size: MaskRCNNSize) -> None:
        super().__init__()
        self.neck = Neck(features, size.channels)
        sides = [(ANCHOR * self.neck.finest * 2**scale,) for scale in range(5)]
        # torchvision counts the background as class 0.
        rcnn: Any = MaskRCNN(
            _Channels(size.channels),
            num_classes=None,
            rpn_anchor_generator=AnchorGenerator(tuple(sides), ((0.5, 1.0, 2.0),) * 5),
            rpn_post_nms_top_n_train=2 * size.proposals,
            rpn_post_nms_top_n_test=size.proposals,
            rpn_pre_nms_top_n_train=2 * size.proposals,
            rpn_pre_nms_top_n_test=size.proposals,
            box_roi_pool=MultiScaleRoIAlign(SCALES, 7, 2),
            box_head=TwoMLPHead(49 * size.channels, size.hidden),
            box_predictor=_predictor(size.hidden, classes + 1),
            box_batch_size_per_image=size.samples,
            mask_roi_pool=MultiScaleRoIAlign(SCALES, 14, 2),
            mask_head=MaskRCNNHeads(
                size.channels, [size.channels] * size.mask_layers, 1
            ),
            mask_predictor=MaskRCNNPredictor(size.channels, size.channels, classes + 1),
        )
        self.rpn = rcnn.rpn
        self.roi_heads = rcnn.roi_heads
        self.proposals = size.proposals

    def forward(self, images: Tensor, sizes: Sizes | None = None) -> list[Objects]:
        """Returns the objects that the network sees, in pixels of the padded images.

        The masks (n, 1, 28, 28) are relative to their boxes.
        """
        found, _ = self._run(images, sizes, None)
        return found

    def losses(
        self, images: Tensor, sizes: Sizes, objects: list[Objects]
    ) -> dict[str, Tensor]:
        """Returns the five losses of the network in training mode, means by image."""
        _, losses = self._run(images, sizes, objects)
        return losses

    def _run(
        self, images: Tensor, sizes: Sizes | None, objects: list[Objects] | None
    ) -> tuple[list[Objects], dict[str, Tensor]]:
        listed = ImageList(images, list(sizes_of(images, sizes)))
        maps = self.neck(images)
        proposals, losses = self.rpn(listed, maps, objects)
        found, more = self.roi_heads(maps, proposals, listed.image_sizes, objects)
        return found, {**losses, **more}


def _predictor(hidden: int, classes: int) -> nn.Module:
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor

    predictor: nn.Module = FastRCNNPredictor(hidden, classes)
    return predictor


class AllBoxes(nn.Module):
    """A pass with a fixed number of boxes, so that its cost is that of every image.

    The second stage sees all proposals that the network may make, and the mask branch
    the boxes that are kept at most. Published FLOPs of Mask R-CNN are counted so, with
    1,000 and 100 boxes.
    """

    def __init__(self, network: MaskRCNNNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Any:
        network = self.network
        height, width = images.shape[-2:]
        maps = network.neck(images)
        proposed = network.rpn.head(list(maps.values()))
        # Boxes of all sizes, so that every scale of the pyramid has some.
        share = torch.linspace(0.01, 1, network.proposals)[:, None]
        corner = torch.tensor([[float(width), float(height)]]) * share
        boxes = torch.cat((torch.zeros_like(corner), corner), dim=1)
        second = network.roi_heads
        pooled = second.box_roi_pool(maps, [boxes], [(height, width)])
        classified = second.box_predictor(second.box_head(pooled))
        kept = boxes[: min(MASKS, network.proposals)]
        pooled = second.mask_roi_pool(maps, [kept], [(height, width)])
        masks = second.mask_predictor(second.mask_head(pooled))
        return proposed, classified, masks
