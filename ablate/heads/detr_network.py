"""The network of the head `detr`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torchvision.ops import box_convert
from transformers import DetrConfig
from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss
from transformers.models.detr.modeling_detr import (
    DetrDecoder,
    DetrEncoder,
    DetrMLPPredictionHead,
    DetrSinePositionEmbedding,
)

from ablate.backbones.features import FeatureMaps
from ablate.heads.padding import Objects, Sizes, sizes_of
from ablate.heads.sizes import DETRSize


class DETR(nn.Module):
    """A transformer on the coarsest map of a backbone, from queries to boxes.

    Shape:
        images (batch, channels, height, width), normalised and padded, to the objects
        of each image.
    """

    def __init__(self, features: FeatureMaps, classes: int, size: DETRSize) -> None:
        super().__init__()
        self.features = features
        self.config: Any = DetrConfig(
            backbone_config=None,
            use_timm_backbone=False,
            num_labels=classes,
            d_model=size.width,
            encoder_layers=size.layers,
            decoder_layers=size.layers,
            encoder_attention_heads=size.heads,
            decoder_attention_heads=size.heads,
            encoder_ffn_dim=size.hidden,
            decoder_ffn_dim=size.hidden,
            num_queries=size.queries,
            dropout=size.dropout,
            auxiliary_loss=True,
        )
        self.projection = nn.Conv2d(features.widths[-1], size.width, 1)
        self.positions = DetrSinePositionEmbedding(size.width // 2, normalize=True)
        self.queries = nn.Embedding(size.queries, size.width)
        self.encoder = DetrEncoder(self.config)
        self.decoder = DetrDecoder(self.config)
        # One class more: no object.
        self.classes = nn.Linear(size.width, classes + 1)
        self.boxes = DetrMLPPredictionHead(size.width, size.width, 4, 3)

    def forward(self, images: Tensor, sizes: Sizes | None = None) -> list[Objects]:
        """Returns an object per query and image, in pixels of the padded images."""
        logits, boxes = self._predict(images, sizes)
        probabilities = logits[-1].softmax(-1)[..., :-1]
        scores, labels = probabilities.max(-1)
        detections = []
        for index, (height, width) in enumerate(sizes_of(images, sizes)):
            scale = boxes.new_tensor([width, height, width, height])
            corners = box_convert(boxes[-1][index], "cxcywh", "xyxy") * scale
            detections.append(
                # Labels of objects count from 1.
                {"boxes": corners, "scores": scores[index], "labels": labels[index] + 1}
            )
        return detections

    def losses(
        self, images: Tensor, sizes: Sizes, objects: list[Objects]
    ) -> dict[str, Tensor]:
        """Returns the loss of the best assignment of queries to objects.

        It is summed over the layers of the decoder.
        """
        logits, boxes = self._predict(images, sizes)
        targets = []
        for one, (height, width) in zip(objects, sizes, strict=True):
            scale = boxes.new_tensor([width, height, width, height])
            relative = box_convert(one["boxes"] / scale, "xyxy", "cxcywh")
            targets.append({"class_labels": one["labels"] - 1, "boxes": relative})
        loss, _, _ = ForObjectDetectionLoss(
            logits[-1],
            targets,
            images.device,
            boxes[-1],
            self.config,
            outputs_class=logits,
            outputs_coord=boxes,
        )
        return {"loss": loss}

    def _predict(self, images: Tensor, sizes: Sizes | None) -> tuple[Tensor, Tensor]:
        """Returns logits (layers, batch, queries, classes + 1) and relative boxes.

        The boxes (layers, batch, queries, 4) are centres and sizes.
        """
        projected = self.projection(self.features(images)[-1])
        real = _real(images, sizes, self.features.strides[-1])
        positions = self.positions(
            shape=projected.shape,
            device=projected.device,
            dtype=projected.dtype,
            mask=real,
        )
        positions = positions.flatten(2).transpose(1, 2)
        mask = None if real is None else real.flatten(1).long()
        encoded = self.encoder(
            inputs_embeds=projected.flatten(2).transpose(1, 2),
            attention_mask=mask,
            spatial_position_embeddings=positions,
        ).last_hidden_state
        queries = self.queries.weight.expand(len(images), -1, -1)
        decoded = self.decoder(
            inputs_embeds=torch.zeros_like(queries),
            spatial_position_embeddings=positions,
            object_queries_position_embeddings=queries,
            encoder_hidden_states=encoded,
            encoder_attention_mask=mask,
        ).intermediate_hidden_states
        return self.classes(decoded), self.boxes(decoded).sigmoid()


class AllLayers(nn.Module):
    """A pass on images without padding that returns tensors, which a trace needs."""

    def __init__(self, network: DETR) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return self.network._predict(images, None)


def _real(images: Tensor, sizes: Sizes | None, stride: int) -> Tensor | None:
    """Returns which positions of a map are not padding; None if none are.

    Shape:
        (batch, height, width) of the map.
    """
    height, width = images.shape[-2:]
    sizes = sizes_of(images, sizes)
    if all(size == (height, width) for size in sizes):
        return None
    real = torch.zeros(
        len(images), height // stride, width // stride, device=images.device
    )
    for one, (rows, columns) in zip(real, sizes, strict=True):
        one[: -(-rows // stride), : -(-columns // stride)] = 1
    return real.bool()
