// The models whose step is measured against PyTorch, each with config and one batch. The Python
// side (peers/step_torch.py) gets the same weights and the same batch.
#pragma once

#include "tanren/data/dataset.h"

#include <ATen/ATen.h>

#include <optional>
#include <string>

namespace tanren::bench {

// A dataset that always returns the same given batch.
class OneBatch : public Dataset {
 public:
  OneBatch(DataInfo info, TensorMap fields, Counts counts)
      : info_(std::move(info)), fields_(std::move(fields)), counts_(std::move(counts)) {}
  int64_t size() const override { return fields_.begin()->second.size(0); }
  DataInfo info() const override { return info_; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    return {{fields_, at::tensor(indices, at::kLong)}, counts_};
  }
  const TensorMap& fields() const { return fields_; }

 private:
  DataInfo info_;
  TensorMap fields_;
  Counts counts_;
};

struct StepCase {
  const char* about;
  RunConfig config;
  OneBatch data;
};

inline RunConfig step_config(const std::string& kind, const std::string& size, int64_t batch) {
  RunConfig config;
  config.run.steps = 1000000;
  config.run.device = "cpu";
  config.model.kind = kind;
  config.model.size = size;
  config.batch.global_batch = std::to_string(batch);
  config.clip.norm = 1.0;
  config.optimizer.learning_rate = 1e-5;
  return config;
}

inline StepCase bert_case(int64_t batch, const char* about) {
  constexpr int64_t kLength = 128, kTokens = 30522;
  TensorMap fields;
  fields.set("inputs", at::randint(1, kTokens, {batch, kLength}, at::kLong));
  fields.set("labels", at::randint(2, {batch}, at::kLong));
  return {about,
          step_config("bert", "bert-base-uncased", batch),
          {{.input_shape = {kLength}, .outputs = 2, .class_labels = true, .vocab_size = kTokens},
           fields,
           {{"samples", batch}}}};
}

inline StepCase gpt2_case(int64_t batch, int64_t microbatch, int64_t length, const char* about) {
  constexpr int64_t kTokens = 50257;
  TensorMap fields;
  fields.set("inputs", at::randint(kTokens, {batch, length}, at::kLong));
  fields.set("labels", at::randint(kTokens, {batch, length}, at::kLong));
  StepCase made{
      about,
      step_config("gpt2", "gpt2", batch),
      {{.input_shape = {length}, .outputs = kTokens, .class_labels = true, .vocab_size = kTokens},
       fields,
       {{"samples", batch}, {"tokens", batch * length}}}};
  made.config.batch.microbatch = microbatch;
  return made;
}

inline StepCase resnet_case(int64_t batch, int64_t microbatch, int64_t edge, const char* about) {
  constexpr int64_t kClasses = 1000;
  TensorMap fields;
  fields.set("inputs", at::randn({batch, 3, edge, edge}));
  fields.set("labels", at::randint(kClasses, {batch}, at::kLong));
  StepCase made{about,
                step_config("resnet", "resnet50", batch),
                {{.input_shape = {3, edge, edge}, .outputs = kClasses, .class_labels = true},
                 fields,
                 {{"samples", batch}}}};
  made.config.batch.microbatch = microbatch;
  return made;
}

// Both objectives of Pix2PixHD's default networks, as NVIDIA's code trains them.
inline StepCase pix2pixhd_case(int64_t edge, const char* about) {
  constexpr int64_t kBatch = 1;
  TensorMap fields;
  for (const char* name : {"inputs", "labels"}) {
    fields.set(name, at::rand({kBatch, 3, edge, edge}) * 2 - 1);
  }
  StepCase made{
      about,
      step_config("pix2pixhd", "", kBatch),
      {{.input_shape = {3, edge, edge}, .outputs = 3 * edge * edge, .class_labels = false},
       fields,
       {{"samples", kBatch}}}};
  made.config.optimizer.kind = "adam";
  made.config.optimizer.beta1 = 0.5;
  made.config.optimizer.learning_rate = 2e-4;
  made.config.clip.norm = 0;
  return made;
}

// bert, gpt2, gpt2_micro (in 4 microbatches), resnet50 or pix2pixhd; nullopt for other names. On an
// accelerator the batches are as large as people give it.
inline std::optional<StepCase> step_case(const std::string& name, bool on_accelerator = false) {
  at::manual_seed(1);
  if (on_accelerator) {
    if (name == "bert") return bert_case(64, "BERT-base, 64 × 128 tokens, dropout 0.1");
    if (name == "gpt2") return gpt2_case(16, 0, 512, "GPT-2 124M, 16 × 512 tokens, dropout 0.1");
    if (name == "gpt2_micro") {
      return gpt2_case(32, 8, 512, "GPT-2 124M, 32 × 512 tokens in 4 microbatches, dropout 0.1");
    }
    if (name == "resnet50") return resnet_case(128, 0, 224, "ResNet-50, 128 images of 224 × 224");
    if (name == "pix2pixhd") return pix2pixhd_case(512, "Pix2PixHD, 1 picture of 512 × 512");
    return std::nullopt;
  }
  if (name == "bert") return bert_case(8, "BERT-base, 8 × 128 tokens, dropout 0.1");
  if (name == "gpt2") return gpt2_case(4, 0, 256, "GPT-2 124M, 4 × 256 tokens, dropout 0.1");
  if (name == "gpt2_micro") {
    return gpt2_case(8, 2, 256, "GPT-2 124M, 8 × 256 tokens in 4 microbatches, dropout 0.1");
  }
  if (name == "resnet50") return resnet_case(8, 0, 224, "ResNet-50, 8 images of 224 × 224");
  if (name == "pix2pixhd") return pix2pixhd_case(256, "Pix2PixHD, 1 picture of 256 × 256");
  return std::nullopt;
}

}  // namespace tanren::bench
