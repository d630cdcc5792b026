"""Measures tanren's loader against torch.utils.data.DataLoader, in turn, in one run.

    loader_torch.py build/release/benchmarks/loader_tokens_bench [PAIRS]

Rows of 512 token ids from a mapped uint16 file, widened to int64, and images of 3 x 32 x 32 floats
in memory, in batches of 32. torch's side is DataLoader with 2 workers and with none (samples,
default collate), and batches gathered by hand (one indexing operation per batch, no DataLoader).
For tokens, tanren delivers inputs and labels, so twice the bytes; torch's rows are inputs only.
"""
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

CONTEXT, TOKENS, IMAGES, BATCH, SECONDS = 512, 1 << 25, 16384, 32, 1.0


class Rows(Dataset):
    def __init__(self, path):
        self.ids = np.memmap(path, dtype=np.uint16, mode="r")

    def __len__(self):
        return (len(self.ids) - 1) // CONTEXT

    def __getitem__(self, i):
        return torch.from_numpy(self.ids[i * CONTEXT : (i + 1) * CONTEXT].astype(np.int64))


def batches(loader):
    while True:
        for batch in loader:
            yield batch[0].shape[0] if isinstance(batch, (list, tuple)) else batch.shape[0]


def by_hand(kind, dataset):
    generator = torch.Generator().manual_seed(1)
    while True:
        for indices in torch.randperm(len(dataset), generator=generator).split(BATCH):
            if kind == "tokens":
                rows = dataset.ids[: len(dataset) * CONTEXT].reshape(-1, CONTEXT)
                yield torch.from_numpy(rows[indices.numpy()].astype(np.int64)).shape[0]
            else:
                yield [tensor[indices] for tensor in dataset.tensors][0].shape[0]


def rate(stream):
    rows, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        rows += next(stream)
    return rows / (time.perf_counter() - start)


def main():
    bench, pairs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10
    torch.set_num_threads(1)
    with tempfile.NamedTemporaryFile() as file:
        ids = (np.arange(TOKENS, dtype=np.uint64) * 2654435761 >> 7).astype(np.uint16)
        ids.tofile(file.name)
        images = TensorDataset(torch.rand(IMAGES, 3, 32, 32), torch.randint(10, (IMAGES,)))
        print(f"torch {torch.__version__}, batches of {BATCH}, {pairs} pairs of {SECONDS} s")
        for kind, dataset in (("tokens", Rows(file.name)), ("images", images)):
            loader = lambda n: batches(  # noqa: E731
                DataLoader(dataset, BATCH, shuffle=True, num_workers=n, persistent_workers=n > 0))
            streams = {"DataLoader, 2 workers": loader(2), "DataLoader, no worker": loader(0),
                       "by hand": by_hand(kind, dataset)}
            for name, stream in streams.items():
                workers = "2" if "2" in name else "0"
                rate(stream)
                ours, theirs = [], []
                for _ in range(pairs):
                    theirs.append(rate(stream))
                    out = subprocess.run([bench, kind, str(BATCH), workers, str(SECONDS)],
                                         capture_output=True, text=True, check=True)
                    ours.append(float(out.stdout))
                ratios = sorted(a / b for a, b in zip(ours, theirs))
                print(f"{kind}  {name:22}  {statistics.median(theirs):9.0f} rows/s  tanren, {workers} "
                      f"workers {statistics.median(ours):9.0f}  ratio min {ratios[0]:.1f} median "
                      f"{statistics.median(ratios):.1f} max {ratios[-1]:.1f}", flush=True)


if __name__ == "__main__":
    main()
