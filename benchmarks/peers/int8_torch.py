#!/usr/bin/env python3
"""The peer of int8_bench: predicts the same batch with the same weights in one of Python's runtimes,
once for each line read, and prints its seconds and the first two outputs.

    int8_torch.py bert|resnet50 KIND THREADS SAMPLES START

START: safetensors with the weights and, as batch.inputs, the batch, whose first SAMPLES are predicted.
KIND:
    fp32          PyTorch eager; ResNet-50 in channels-last
    bf16          the same with weights in bf16
    autocast      fp32 weights under autocast in bf16
    torch_ao      torch.ao.quantization.quantize_dynamic of the linear layers
    torchao       torchao's Int8DynamicActivationInt8WeightConfig, eager, the rest in fp32
    torchao_bf16  the same, the rest in bf16
    onnx          onnxruntime, 8 bits per channel: quantize_dynamic for bert, static QDQ calibrated on
                  the batch for resnet50
    onnx_fused    bert: the same after onnxruntime.transformers' optimizer, which joins GELU and the norms (with
                  onnxruntime 1.32 and transformers 5.23 it finds no attention, by either exporter)
Made with torch 2.11.0, torchao 0.17.0, onnxruntime 1.32.0, onnx 1.23.2, onnxscript 0.7.2, transformers 5.23.0,
torchvision 0.26.0.

Prints "ready", or one line that says why not.
"""

import contextlib
import os
import sys
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path

warnings.filterwarnings("ignore")


def model_of(name):
    import torch

    if name == "resnet50":
        import torchvision

        return torchvision.models.resnet50()
    import transformers

    class Scores(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=2))

        def forward(self, inputs):
            return self.model(inputs).logits

        def load_state_dict(self, *arguments, **options):
            return self.model.load_state_dict(*arguments, **options)

    return Scores()


def load(name, samples, start):
    import safetensors.torch

    given = safetensors.torch.load_file(start)
    inputs = given.pop("batch.inputs")[:samples].contiguous()
    model = model_of(name)
    missing, unexpected = model.load_state_dict(given, strict=False)
    assert not unexpected and not missing, (missing, unexpected)
    return model.eval(), inputs


def prepared_torch(kind, name, model, inputs):
    """What predicts in PyTorch."""
    import torch

    if name == "resnet50":
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    if kind in ("bf16", "torchao_bf16"):
        model = model.to(torch.bfloat16)
        inputs = inputs.to(torch.bfloat16) if inputs.is_floating_point() else inputs
    if kind == "torch_ao":
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    if kind.startswith("torchao"):
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        quantize_(model, Int8DynamicActivationInt8WeightConfig())

    def predict():
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            return model(inputs)[0, :2].float().tolist()

    return predict


def exported(model, inputs, file):
    import torch

    torch.onnx.export(model, (inputs,), str(file), input_names=["inputs"], output_names=["outputs"],
                      dynamo=True, external_data=False)


def fused(file):
    """Joins layers as onnxruntime's users do for transformers; returns the new file."""
    from onnxruntime.transformers.optimizer import optimize_model

    optimized = optimize_model(str(file), model_type="bert", num_heads=12, hidden_size=768)
    print("onnx_fused:", optimized.get_fused_operator_statistics(), file=sys.stderr)
    to = file.with_name("fused.onnx")
    optimized.save_model_to_file(str(to))
    return to


class OneBatch:
    """What quantize_static calibrates on."""

    def __init__(self, inputs):
        self.feeds = [{"inputs": inputs.numpy()}]

    def get_next(self):
        return self.feeds.pop() if self.feeds else None


def quantized_onnx(kind, name, plain, inputs, folder):
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready, to = folder / "ready.onnx", folder / "int8.onnx"
    quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
    if kind == "onnx_fused":
        ready = fused(ready)
    if name == "bert":
        quantization.quantize_dynamic(str(ready), str(to), per_channel=True,
                                      weight_type=quantization.QuantType.QInt8)
        return to
    quantization.quantize_static(
        str(ready), str(to), OneBatch(inputs), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8)
    return to


def prepared_onnx(kind, name, model, inputs, threads):
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        exported(model, inputs, plain)
        quantized = quantized_onnx(kind, name, plain, inputs, Path(folder))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # Its threads spin while it works, but not into the time of the other side.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        session = onnxruntime.InferenceSession(str(quantized), options, providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: inputs.numpy()}
    return lambda: [float(x) for x in session.run(None, feeds)[0][0, :2]]


def prepared(name, kind, threads, samples, start):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, inputs = load(name, samples, start)
    used = {"torchao": "torchao", "torchao_bf16": "torchao", "onnx": "onnxruntime", "onnx_fused": "onnxruntime"}
    print(f"{name}, {kind}: {used.get(kind, 'torch')} {version(used.get(kind, 'torch'))}", file=sys.stderr)
    if kind.startswith("onnx"):
        return prepared_onnx(kind, name, model, inputs, threads)
    return prepared_torch(kind, name, model, inputs)


def main():
    name, kind, threads, samples, start = sys.argv[1:6]
    answers = os.fdopen(os.dup(1), "w")  # libraries print while they export
    with contextlib.redirect_stdout(sys.stderr):
        try:
            predict = prepared(name, kind, int(threads), int(samples), start)
        except Exception as error:  # the other side says it, and goes on with the next peer
            text = " ".join(f"{type(error).__name__}: {error}".split())
            print(text.encode()[:200].decode(errors="ignore"), file=answers, flush=True)
            sys.exit(1)
        print("ready", file=answers, flush=True)
        for _ in sys.stdin:
            begin = time.perf_counter()
            first, second = predict()
            print(time.perf_counter() - begin, f"{first:.6f} {second:.6f}", file=answers, flush=True)


if __name__ == "__main__":
    main()
