"""The peer of loader_images_bench: runs one epoch of torch.utils.data.DataLoader for each line read
and prints its seconds, so that both sides are measured in turn in one run.

    loader_images_torch.py jpeg FOLDER WORKERS BATCH      torchvision: decode, RandomResizedCrop(224),
                                                          flip, ToTensor, Normalize
    loader_images_torch.py pairs FOLDER WORKERS BATCH     torchvision: both pictures of a pair decoded,
                                                          resize to 286, one random crop of 256 and
                                                          flip, ToTensor, Normalize(0.5, 0.5)
    loader_images_torch.py memory IMAGES WORKERS BATCH    float 3 × 32 × 32 in a TensorDataset
    loader_images_torch.py sliced IMAGES WORKERS BATCH    the same, batched by hand: data[indices]"""
import pathlib
import random
import sys
import time

import torch
import torch.utils.data as data

torch.set_num_threads(1)
kind, what, workers, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


class Pairs(data.Dataset):
    """FOLDER/inputs and FOLDER/targets, as pix2pix's own data sets read them."""

    def __init__(self, folder):
        self.folders = [pathlib.Path(folder) / side for side in ("inputs", "targets")]
        self.names = sorted(path.name for path in self.folders[0].iterdir())

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        from PIL import Image
        from torchvision.transforms import InterpolationMode, RandomCrop
        from torchvision.transforms import functional as F
        pictures = [Image.open(folder / self.names[index]).convert("RGB") for folder in self.folders]
        pictures = [F.resize(picture, 286, InterpolationMode.BICUBIC) for picture in pictures]
        box = RandomCrop.get_params(pictures[0], (256, 256))
        flips = random.random() < 0.5
        tensors = []
        for picture in pictures:
            picture = F.crop(picture, *box)
            picture = F.hflip(picture) if flips else picture
            tensors.append(F.normalize(F.to_tensor(picture), [0.5] * 3, [0.5] * 3))
        return tuple(tensors)


def loader():
    if kind == "pairs":
        return data.DataLoader(Pairs(what), batch, shuffle=True, num_workers=workers,
                               persistent_workers=workers > 0)
    if kind == "jpeg":
        from torchvision import datasets, transforms
        dataset = datasets.ImageFolder(what, transforms.Compose([
            transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]))
    else:
        count = int(what)
        dataset = data.TensorDataset(torch.rand(count, 3, 32, 32), torch.arange(count) % 10)
    return data.DataLoader(dataset, batch, shuffle=True, num_workers=workers,
                           persistent_workers=workers > 0)


class Sliced:
    """The usual replacement when DataLoader is too slow: a permutation and fancy indexing."""

    def __init__(self, count):
        self.inputs, self.labels = torch.rand(count, 3, 32, 32), torch.arange(count) % 10

    def __iter__(self):
        order = torch.randperm(len(self.labels))
        for i in range(0, len(order), batch):
            taken = order[i:i + batch]
            yield self.inputs[taken], self.labels[taken]


batches = Sliced(int(what)) if kind == "sliced" else loader()
for _ in batches:  # starts the workers
    pass
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    images = 0
    for inputs, _ in batches:
        images += len(inputs)
    print(time.perf_counter() - start, images, flush=True)
