"""Makes tests/fixtures/pt/: files as torch.save writes them, and their tensors as safetensors.

    python scripts/make_pt_fixtures.py      (torch 2.11 and safetensors from PyPI)
"""

from pathlib import Path

import torch
from safetensors.torch import save_file

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "pt"


def tensors():
    torch.manual_seed(0)
    base = torch.randn(4, 6)
    everything = {
        "weight": base,
        "tied": base,
        "transposed": base.t(),
        "part": base[1:3, ::2],
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "bool": torch.tensor([True, False, True]),
    }
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
                  torch.int8, torch.uint8):
        everything[str(dtype).removeprefix("torch.")] = torch.arange(5).to(dtype)
    return everything


def expected(name, content):
    save_file({key: value.detach().clone().contiguous() for key, value in content.items()},
              FOLDER / f"{name}.safetensors")


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
        self.head = torch.nn.Linear(8, 3)
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def main():
    FOLDER.mkdir(exist_ok=True)
    everything = tensors()
    expected("state_dict", everything)
    torch.save(everything, FOLDER / "state_dict.pt")
    torch.save(everything, FOLDER / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(everything, FOLDER / "protocol4.pt", pickle_protocol=4)

    torch.manual_seed(1)
    model = Small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    model(torch.randn(2, 1, 4, 4)).sum().backward()
    optimizer.step()
    expected("model", model.state_dict())
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7, "best": 0.5,
                "name": "small", "done": False}, FOLDER / "checkpoint.pt")
    torch.save(model, FOLDER / "module.pt")
    torch.save(torch.nn.DataParallel(model).state_dict(), FOLDER / "data_parallel.pt")
    torch.jit.script(model).save(FOLDER / "torchscript.pt")


if __name__ == "__main__":
    main()
