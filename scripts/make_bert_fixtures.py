#!/usr/bin/env python3
"""Writes tests/fixtures/bert_*.safetensors from transformers' BertForSequenceClassification and
BertForMaskedLM: tiny, dropout 0, fp32, with padding and two token types; and 20 steps of AdamW.

Needs torch, transformers and safetensors; run it by hand when a fixture should change, and commit
the result.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
IGNORED = -100


def make_model(kind):
    config = BertConfig(
        vocab_size=37,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=16,
        type_vocab_size=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=1e-6,
        initializer_range=0.2,  # far from the linear regime
        num_labels=5,
        attn_implementation="eager",
    )
    model = kind(config)
    with torch.no_grad():  # so that biases and norms count
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.3)
            elif "LayerNorm" in name:
                parameter.normal_(1, 0.3)
    return model.train()


def loss_sum(logits, labels):
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def write(name, kind):
    torch.manual_seed(5)
    model = make_model(kind)
    ids = torch.randint(1, 37, (4, 11))
    types = torch.randint(3, (4, 11))
    mask = torch.ones(4, 11, dtype=torch.long)
    for row, length in enumerate((11, 6, 1, 9)):
        ids[row, length:] = 0
        mask[row, length:] = 0
    if kind is BertForMaskedLM:
        labels = torch.where((torch.rand(4, 11) < 0.4) & (mask == 1), ids, IGNORED)
        labels[0, 3] = 7
    else:
        labels = torch.tensor([3, 0, 4, 1])
    batch = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
    result = {"inputs": ids, "token_types": types, "attention_mask": mask, "labels": labels}
    for key, parameter in model.named_parameters():
        result[f"parameter/{key}"] = parameter.detach().clone()
    logits = model(**batch).logits
    loss = loss_sum(logits, labels)
    loss.backward()
    result |= {"logits": logits.detach(), "loss": loss.detach()}
    for key, parameter in model.named_parameters():
        result[f"gradient/{key}"] = parameter.grad.clone()
    with torch.no_grad():
        result["bare_logits"] = model(ids).logits  # no token types, no padding
        if kind is BertForSequenceClassification:
            result["pooled"] = model.bert(**batch).pooler_output
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    count = (labels != IGNORED).sum()
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = loss_sum(model(**batch).logits, labels) / count
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    result["losses"] = torch.stack(losses)
    target = FIXTURES / f"bert_{name}.safetensors"
    save_file({n: t.contiguous() for n, t in result.items()}, target)
    target.chmod(0o644)


def main():
    torch.set_num_threads(1)
    write("classify", BertForSequenceClassification)
    write("masked_lm", BertForMaskedLM)


if __name__ == "__main__":
    main()
