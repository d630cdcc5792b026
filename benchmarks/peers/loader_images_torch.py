"""The peer of loader_images_bench: runs one epoch of torch.utils.data.DataLoader for each line read
and prints its seconds, so that both sides are measured in turn in one run.

    loader_images_torch.py jpeg FOLDER WORKERS BATCH      torchvision: decode, RandomResizedCrop(224),
                                                          flip, ToTensor, Normalize
    loader_images_torch.py memory IMAGES WORKERS BATCH    float 3 × 32 × 32 in a TensorDataset
    loader_images_torch.py sliced IMAGES WORKERS BATCH    the same, batched by hand: data[indices]"""
import sys
import time

import torch
import torch.utils.data as data

torch.set_num_threads(1)
kind, what, workers, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def loader():
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
