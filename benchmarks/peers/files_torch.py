"""The peer of files_bench: loads a file of weights into existing tensors, once for each line read.

    python files_torch.py FILE THREADS
"""

import sys
import time

import torch
from safetensors.torch import load_file


class Model(torch.nn.Module):
    def __init__(self, tensors):
        super().__init__()
        for name, tensor in tensors.items():
            module = self
            *path, last = name.split(".")
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, torch.nn.Module())
                module = getattr(module, part)
            module.register_parameter(last, torch.nn.Parameter(tensor.clone()))


def main():
    file = sys.argv[1]
    torch.set_num_threads(int(sys.argv[2]))
    if file.endswith(".safetensors"):
        load = lambda: load_file(file)
    else:
        load = lambda: torch.load(file, mmap=True, weights_only=True)
    model = Model(load())
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        model.load_state_dict(load())
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main()
