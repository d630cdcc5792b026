#!/usr/bin/env python3
"""Writes tests/fixtures/bf16_paths.safetensors: what transformers' BERT and GPT-2 give under bf16 autocast
by two of their own ways to compute attention, eager and sdpa, with the weights and batches of the fp32
fixtures; and the spread, how far the two are from each other at most on BATCHES batches of that size.
That is how far bf16 lets a third be.

Needs torch, transformers and safetensors; run it by hand after the fp32 fixtures changed, and commit the
result.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
)

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"

# As in make_bert_fixtures.py and make_gpt2_fixture.py.
BERT = dict(
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
    num_labels=5,
)
GPT2 = dict(
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
    bos_token_id=None,
    eos_token_id=None,
)
BATCHES = 48
FIELDS = {"inputs": "input_ids", "token_types": "token_type_ids", "attention_mask": "attention_mask"}


def path_of(kind, config, fixture, attention):
    model = kind._from_config(config, attn_implementation=attention).train()
    missing = set(model.state_dict())
    for name, parameter in model.named_parameters():
        parameter.data.copy_(fixture[f"parameter/{name}"])
        missing.discard(name)
    assert all(not name.endswith((".weight", ".bias")) or "decoder" in name or "lm_head" in name for name in missing)
    batch = {theirs: fixture[ours] for ours, theirs in FIELDS.items() if ours in fixture}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(**batch).logits
    torch.nn.functional.cross_entropy(
        logits.float().flatten(0, -2), fixture["labels"].flatten(), ignore_index=-100, reduction="sum"
    ).backward()
    result = {"logits": logits.detach().float()}
    for name, parameter in model.named_parameters():
        result[f"gradient/{name}"] = parameter.grad
    return result


def distance(one, other):
    return float((one.double() - other.double()).norm() / other.double().norm())


def gradients(result):
    return torch.cat([tensor.flatten() for name, tensor in sorted(result.items()) if name != "logits"])


def spread(kind, config, fixture):
    """The largest distances over other tokens in the same places."""
    widest = {"logits": 0.0, "gradients": 0.0, "gradient": 0.0}
    for seed in range(BATCHES):
        torch.manual_seed(seed)
        batch = dict(fixture)
        if seed > 0:
            batch["inputs"] = torch.randint_like(fixture["inputs"], 1, config.vocab_size)
        eager, sdpa = (path_of(kind, config, batch, attention) for attention in ("eager", "sdpa"))
        widest["logits"] = max(widest["logits"], distance(eager["logits"], sdpa["logits"]))
        widest["gradients"] = max(widest["gradients"], distance(gradients(eager), gradients(sdpa)))
        for name, tensor in eager.items():  # the gradient of a key's bias is 0 but for rounding
            if name != "logits" and not name.endswith("key.bias"):
                widest["gradient"] = max(widest["gradient"], distance(tensor, sdpa[name]))
    return widest


def main():
    torch.set_num_threads(1)
    result = {}
    for name, kind, config in (
        ("bert_classify", BertForSequenceClassification, BertConfig(**BERT)),
        ("bert_masked_lm", BertForMaskedLM, BertConfig(**BERT)),
        ("gpt2", GPT2LMHeadModel, GPT2Config(**GPT2)),
    ):
        fixture = load_file(FIXTURES / f"{name}.safetensors")
        for attention in ("eager", "sdpa"):
            for key, tensor in path_of(kind, config, fixture, attention).items():
                result[f"{name}/{attention}/{key}"] = tensor.contiguous()
        for key, value in spread(kind, config, fixture).items():
            result[f"{name}/spread/{key}"] = torch.tensor(value)
    target = FIXTURES / "bf16_paths.safetensors"
    save_file(result, target)
    target.chmod(0o644)


if __name__ == "__main__":
    main()
