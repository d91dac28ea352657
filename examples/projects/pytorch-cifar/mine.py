import ablate
from models.preact_resnet import PreActBlock, PreActResNet
from models.resnet import BasicBlock, ResNet


@ablate.backbone(image_size=32, factors={"preact": [False, True]})
def cifar_resnet(image_size, channels, classes, preact):
    make, block = (PreActResNet, PreActBlock) if preact else (ResNet, BasicBlock)
    return make(block, [1, 1, 1, 1], classes)
