"""Makes tests/fixtures/vision.safetensors: what torchvision's ResNet and VGG compute from weights that the
same seed gives here and there, so that no weight needs to be stored.

    python scripts/make_vision_fixtures.py      (torch 2.11, torchvision, safetensors from PyPI)
"""

from pathlib import Path

import torch
import torchvision
from safetensors.torch import save_file

FIXTURE = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "vision.safetensors"


def main():
    torch.set_num_threads(1)
    result = {}
    for name in ("resnet18", "resnet50", "vgg11_bn"):
        torch.manual_seed(3)
        model = getattr(torchvision.models, name)(num_classes=5)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        x = torch.randn(2, 3, 64, 64)
        if name == "resnet50":  # batch norm over few pixels amplifies rounding
            model.double()
            x = x.double()
        labels = torch.tensor([1, 4])
        model.train()
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        loss.backward()
        model.eval()
        with torch.no_grad():
            evaluated = model(x)
        result[f"{name}/inputs"] = x.float()
        result[f"{name}/logits"] = logits.detach()
        result[f"{name}/evaluated"] = evaluated
        names, norms = zip(*((n, p.grad.norm()) for n, p in model.named_parameters()))
        result[f"{name}/grad_norms"] = torch.stack(norms)
        result[f"{name}/num_parameters"] = torch.tensor([p.numel() for p in model.parameters()])
        result[f"{name}/names"] = torch.tensor(list("\n".join(model.state_dict()).encode()), dtype=torch.uint8)
    save_file(result, FIXTURE)


if __name__ == "__main__":
    main()
