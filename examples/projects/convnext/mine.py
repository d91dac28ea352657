import ablate
from models.convnext import ConvNeXt


@ablate.backbone(
    image_size=32, factors={"layer_scale": [1e-6, 0.0], "width": [8, 16, 32]}
)
def small_convnext(image_size, channels, classes, layer_scale, width):
    widths = [width, 2 * width, 4 * width, 8 * width]
    return ConvNeXt(channels, classes, [1, 1, 2, 1], widths, 0.0, layer_scale)
