#!/usr/bin/env python3
"""Checks that transformers computes the same of a model with 8-bit weights as tanren.

    check_quantized.py TANREN_BINARY EMPTY_FOLDER

Trains a small bert, and writes its whole model again with 8-bit weights, as docs/file-formats.md
says: with dynamic inputs, with static ones, and with both. `tanren convert` makes a folder of each,
in fp32 and one in bf16, which transformers opens with compressed-tensors. Its linear layers must be
int8 there, and its probabilities must equal those of `tanren predict` within 1e-2, in bf16 within
3e-2; the losses, too.

Called by tests/interop/run, which provides the packages.
"""

import json
import subprocess
import sys
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

TOKENS, VOCAB, CLASSES, SAMPLES = 12, 40, 3, 20
WORDS = "bert.embeddings.word_embeddings.weight"

CONFIG = """
[run]
steps = 20
seed = 1
threads = 1
[model]
kind = "bert"
num_layers = 2
num_heads = 2
hidden_size = 32
intermediate_size = 64
context_length = 16
vocab_size = 40
dropout = 0.0
[data.train]
kind = "tensors"
path = "data.safetensors"
[data.eval]
kind = "tensors"
path = "data.safetensors"
[batch]
global_batch = 4
[precision]
mode = "fp32"
[optimizer]
kind = "adamw"
learning_rate = 1e-2
"""


def expect(fine, what):
    if not fine:
        sys.exit(f"[interop] quantized: {what}")


def tanren(binary, *arguments):
    result = subprocess.run([binary, *arguments], check=False, capture_output=True, text=True)
    expect(result.returncode == 0, f"tanren {arguments}: {result.stderr}{result.stdout}")
    return result.stdout


def outputs(model, data):
    with torch.no_grad():
        return model(data["inputs"], attention_mask=data["attention_mask"]).logits


def inputs_of_layers(model, data):
    """The least and the largest number that each linear layer reads."""
    ranges = {}

    def note(name):
        def hook(_, inputs, __):
            ranges[name] = (inputs[0].min().item(), inputs[0].max().item())

        return hook

    hooks = [
        module.register_forward_hook(note(name))
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    outputs(model, data)
    for hook in hooks:
        hook.remove()
    return ranges


def quantize(whole, to, ranges, static):
    """Writes `whole` with 8-bit linear layers and words; `static`: whether a layer's input is."""
    tensors, readers = {}, {}
    with safe_open(whole, framework="pt") as file:
        metadata = file.metadata()
    for name, tensor in load_file(whole).items():
        layer = name.removesuffix(".weight")
        if name != WORDS and (layer not in ranges or layer == name):
            tensors[name] = tensor
            continue
        scale = (tensor.abs().amax(1, keepdim=True) / 127).clamp_min(torch.finfo(torch.float32).tiny)
        tensors[name] = (tensor / scale).round().clamp(-127, 127).to(torch.int8)
        tensors[name + "_scale"] = scale
        readers[name] = "embedding" if name == WORDS else "linear"
        if name == WORDS or not static(layer):
            continue
        low, high = min(ranges[layer][0], 0.0), max(ranges[layer][1], 0.0)
        step = (high - low) / 255
        tensors[layer + ".input_scale"] = torch.tensor([step])
        zero = round(-low / step) - 128
        tensors[layer + ".input_zero_point"] = torch.tensor([zero], dtype=torch.int8)
    note = {"scheme": "static", "range": "minmax", "samples": SAMPLES, "kept": {}, "readers": readers}
    metadata |= {"tanren.version": "2", "tanren.quantize": json.dumps(note)}
    save_file(tensors, to, metadata)
    return [name for name, reader in readers.items() if reader == "linear"]


def check(binary, folder, name, ranges, static, data, dtype="fp32", bound=1e-2):
    whole = folder / f"{name}.tanren.safetensors"
    layers = quantize(folder / "run/model.tanren.safetensors", whole, ranges, static)
    listed = tanren(binary, "convert", whole, "--list")
    expect(f"{len(layers)} linear" in listed, f"{name}: --list says {listed}")
    tanren(binary, "convert", whole, folder / name, "--dtype", dtype, "--quiet")
    predicted = folder / f"{name}.predictions.safetensors"
    tanren(
        binary, "predict", whole, folder / "data.safetensors", "--out", predicted,
        "--set", "predict.scores=all", "--quiet",
    )  # fmt: skip
    said = tanren(binary, "eval", whole, folder / "data.safetensors", "--json")
    ours = load_file(predicted)["scores"]

    opened, info = transformers.BertForSequenceClassification.from_pretrained(
        folder / name, dtype="auto", output_loading_info=True
    )
    torch_dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    expect(opened.dtype == torch_dtype, f"{name}: opened in {opened.dtype}")
    left = {key: info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    expect(not any(left.values()), f"{name}: from_pretrained says {left}")
    stored = opened.state_dict()
    for layer in layers:
        expect(stored[layer].dtype == torch.int8, f"{name}: {layer} is {stored[layer].dtype}")
    opened.eval()
    logits = outputs(opened, data).float()
    apart = (logits.softmax(1) - ours).abs().max().item()
    loss = torch.nn.functional.cross_entropy(logits, data["labels"]).item()
    losses = abs(json.loads(said)["evaluate.loss"] - loss) / loss
    expect(apart < bound, f"{name}: probabilities differ by {apart:.1e}")
    expect(losses < bound, f"{name}: losses differ by {losses:.1e}")
    print(
        f"[interop] bert with 8-bit weights ({name}): opened with compressed-tensors, {len(layers)} "
        f"layers int8, probabilities within {apart:.1e} and loss within {losses:.1e} of ours"
    )


def main():
    binary, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(7)
    transformers.utils.logging.disable_progress_bar()
    lengths = torch.randint(4, TOKENS + 1, (SAMPLES,))
    data = {
        "inputs": torch.randint(5, VOCAB, (SAMPLES, TOKENS)),
        "attention_mask": (torch.arange(TOKENS) < lengths[:, None]).long(),
        "labels": torch.randint(CLASSES, (SAMPLES,)),
    }
    save_file(data, folder / "data.safetensors")
    (folder / "run.toml").write_text(CONFIG)
    tanren(binary, "run", folder / "run.toml", "--out", folder / "run", "--quiet")
    tanren(binary, "convert", folder / "run", folder / "floating", "--quiet")
    floating = transformers.BertForSequenceClassification.from_pretrained(folder / "floating")
    ranges = inputs_of_layers(floating.eval(), data)
    check(binary, folder, "dynamic", ranges, lambda layer: False, data)
    check(binary, folder, "static", ranges, lambda layer: True, data)
    check(binary, folder, "mixed", ranges, lambda layer: "attention" in layer, data)
    check(binary, folder, "bf16", ranges, lambda layer: True, data, dtype="bf16", bound=3e-2)


main()
