#!/usr/bin/env python3
"""Writes tests/fixtures/hf: folders as save_pretrained makes them (a BERT classifier; a BERT language
model as pytorch_model.bin with the names of old files; a GPT-2 in several files), each with
what the model gives in expected.safetensors.

Needs torch, transformers and safetensors; run it by hand when a fixture should change, and commit
the result.
"""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2Model,
)

TARGET = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "hf"
BERT = dict(
    vocab_size=23,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=10,
    hidden_act="relu",
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.3,
    layer_norm_eps=1e-6,
    initializer_range=0.3,
)


def expect(folder, **tensors):
    save_file({n: t.detach().contiguous() for n, t in tensors.items()}, folder / "expected.safetensors")


def main():
    torch.set_num_threads(1)
    shutil.rmtree(TARGET, ignore_errors=True)
    ids = torch.randint(1, 23, (3, 7), generator=torch.Generator().manual_seed(1))

    torch.manual_seed(2)
    model = BertForSequenceClassification(BertConfig(**BERT, num_labels=4)).eval()
    model.save_pretrained(TARGET / "bert")
    expect(TARGET / "bert", inputs=ids, logits=model(ids).logits, pooled=model.bert(ids).pooler_output)

    folder = TARGET / "bert_old"
    folder.mkdir()
    model = BertForMaskedLM(BertConfig(**BERT)).eval()
    with torch.no_grad():
        model.cls.predictions.bias.normal_()
    state = {}
    for name, tensor in model.state_dict().items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        state[name] = tensor.clone()
    state["bert.embeddings.position_ids"] = torch.arange(10)[None]
    state["cls.seq_relationship.weight"] = torch.randn(2, 12)
    torch.save(state, folder / "pytorch_model.bin")
    config = {k: v for k, v in BERT.items()} | {"model_type": "bert", "architectures": ["BertForMaskedLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    expect(folder, inputs=ids, logits=model(ids).logits)

    config = GPT2Config(
        vocab_size=23, n_positions=10, n_embd=12, n_layer=2, n_head=2, n_inner=20,
        embd_pdrop=0.2, attn_pdrop=0.3, resid_pdrop=0.0, initializer_range=0.3,
    )
    model = GPT2Model(config).eval()  # no head, so no prefix before its names
    model.save_pretrained(TARGET / "gpt2", max_shard_size="3KB")
    states = model(ids).last_hidden_state
    expect(TARGET / "gpt2", inputs=ids, logits=states @ model.wte.weight.T)
    for path in TARGET.rglob("*"):
        if path.is_file():
            path.chmod(0o644)


if __name__ == "__main__":
    main()
