"""Makes what torch.save leaves of whole modules, in tests/fixtures/pt/: classes of torchvision and
transformers, a compiled module's state_dict.

    python scripts/make_module_fixtures.py      (torch 2.11, torchvision, transformers, safetensors)

Needs the fixtures of make_pt_fixtures.py and make_hf_fixtures.py.
"""

import os
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torchvision.models import resnet18, vgg11_bn
from torchvision.models.resnet import BasicBlock, ResNet
from transformers import BertForSequenceClassification

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"


def resnet():
    """A ResNet by its class, with its stages made narrow: the file stays small."""
    torch.manual_seed(5)
    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3)
    model.conv1 = nn.Conv2d(3, 4, 7, stride=2, padding=3, bias=False)
    model.bn1 = nn.BatchNorm2d(4)
    model.layer1 = nn.Sequential(BasicBlock(4, 4))
    shortcut = nn.Sequential(nn.Conv2d(4, 8, 1, stride=2, bias=False), nn.BatchNorm2d(8))
    model.layer2 = nn.Sequential(BasicBlock(4, 8, 2, shortcut))
    model.layer3 = model.layer4 = nn.Sequential()
    model.fc = nn.Linear(8, 3)
    model.train()
    model(torch.randn(2, 3, 32, 32))  # so that the running statistics are some
    return model


def constant(model):
    """Each tensor one number that is repeated by strides of 0: a model of full size in a small file."""
    torch.manual_seed(6)
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            tensor.data = torch.rand(1).mul(0.1).expand(tensor.shape)
    return model


def main():
    torch.set_num_threads(1)
    folder = FIXTURES / "pt"
    model = resnet()
    torch.save(model, folder / "torchvision_module.pt")
    save_file({n: t.clone() for n, t in model.state_dict().items()}, folder / "torchvision_module.safetensors")
    torch.save(constant(resnet18(num_classes=3)), folder / "resnet18_module.pt")
    vgg = vgg11_bn()
    vgg.classifier = nn.Sequential(nn.Linear(25088, 3))
    torch.save(constant(vgg), folder / "vgg11_bn_module.pt")
    os.chdir(FIXTURES / "hf")  # the file remembers the name that it was loaded by
    bert = BertForSequenceClassification.from_pretrained("bert")
    torch.save(bert, folder / "transformers_module.pt")
    weights = load_file(folder / "model.safetensors")
    torch.save({"epoch": 3, "state_dict": {f"module._orig_mod.{n}": t for n, t in weights.items()}},
               folder / "compiled.pt")
    for path in folder.glob("*"):
        path.chmod(0o644)


if __name__ == "__main__":
    main()
