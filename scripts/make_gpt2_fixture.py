#!/usr/bin/env python3
"""Writes tests/fixtures/gpt2.safetensors and gpt2_classify.safetensors from transformers'
GPT2LMHeadModel and GPT2ForSequenceClassification, dropout 0, fp32, the latter with padding.

Needs torch, transformers and safetensors; run it by hand when the fixture should change, and commit
the result.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"


def make_model(kind):
    config = GPT2Config(
        vocab_size=61,
        n_positions=16,
        n_embd=24,
        n_layer=3,
        n_head=3,
        n_inner=80,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        layer_norm_epsilon=2e-5,
        initializer_range=0.2,  # far from the linear regime
        num_labels=5,
        pad_token_id=0,
        attn_implementation="eager",
    )
    model = kind(config)
    with torch.no_grad():  # so that biases and norms count
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.3)
            elif "ln_" in name:
                parameter.normal_(1, 0.3)
    return model.train()


def write(name, result):
    target = FIXTURES / name
    save_file({n: t.detach().contiguous() for n, t in result.items()}, target)
    target.chmod(0o644)


def classify():
    torch.manual_seed(4)
    model = make_model(GPT2ForSequenceClassification)
    inputs = torch.randint(1, 61, (4, 13))
    mask = torch.ones(4, 13, dtype=torch.long)
    for row, length in enumerate((13, 7, 1, 10)):
        inputs[row, length:] = 0
        mask[row, length:] = 0
    labels = torch.tensor([3, 0, 4, 1])
    logits = model(inputs, attention_mask=mask).logits
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    loss.backward()
    result = {"inputs": inputs, "attention_mask": mask, "labels": labels, "logits": logits, "loss": loss}
    for name, parameter in model.named_parameters():
        result[f"parameter/{name}"] = parameter
        result[f"gradient/{name}"] = parameter.grad
    write("gpt2_classify.safetensors", result)


def language():
    torch.manual_seed(3)
    model = make_model(GPT2LMHeadModel)
    inputs = torch.randint(61, (3, 13))
    labels = torch.randint(61, (3, 13))
    labels[0, 4] = labels[2, 7:] = -100
    logits = model(inputs).logits
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
    )
    loss.backward()
    result = {"inputs": inputs, "labels": labels, "logits": logits.detach(), "loss": loss.detach()}
    for name, parameter in model.named_parameters():
        result[f"parameter/{name}"] = parameter.detach()
        result[f"gradient/{name}"] = parameter.grad
    model.eval()
    greedy = model.generate(
        inputs[:1, :4], attention_mask=torch.ones(1, 4), max_new_tokens=12, do_sample=False, pad_token_id=0
    )
    result["greedy"] = greedy[0]
    write("gpt2.safetensors", result)


def main():
    torch.set_num_threads(1)
    language()
    classify()


if __name__ == "__main__":
    main()
