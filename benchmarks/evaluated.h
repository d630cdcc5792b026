// A model as an evaluation has it, in several precisions and with 8-bit weights: config and data →
// plan → state without gradients, and one prediction or one text at a time. Shared by the parts of
// int8_bench.
#pragma once

#include "tanren/model/registry.h"
#include "tanren/plan/planner.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/quantize/calibration.h"
#include "tanren/quantize/fold.h"
#include "tanren/quantize/quantized_task.h"
#include "tanren/train/build.h"
#include "tanren/train/predict.h"
#include "tanren/train/prepared.h"
#include "benchmarks/step_cases.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tanren::bench {

inline Batch whole_batch(const OneBatch& data) {
  std::vector<int64_t> all(static_cast<size_t>(data.size()));
  std::iota(all.begin(), all.end(), int64_t{0});
  return data.collate(all).batch;
}

// The distance of `got` from `wanted`, relative to the norm of `wanted`.
inline double distance(const at::Tensor& got, const at::Tensor& wanted) {
  const at::Tensor exact = wanted.to(at::kDouble);
  return ((got.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

// The task of a case. Each call gives the same weights.
inline Task task_of(const StepCase& of) {
  Task task = build_task(of.config, ModelRegistry(), of.data);
  task.module->eval();
  return task;
}

// The 8-bit weights of a task, all that can be. Folds its batch norms and calibrates on the batch
// where the scheme needs it.
inline QuantizedParameters quantized_of(const Task& task, const Batch& batch,
                                        QuantizeScheme scheme) {
  if (scheme == QuantizeScheme::calibrated) (void)fold_batch_norms(task, batch);
  const WeightReaders readers = weights_to_quantize(find_readers(task, batch), {});
  InputScales inputs;
  if (scheme == QuantizeScheme::calibrated) {
    Calibration calibration(task, readers, RangeKind::mse);
    calibration.predict(batch);
    inputs = calibration.inputs();
  }
  return quantized_parameters(*task.module, readers, scheme, inputs);
}

class Evaluated {
 public:
  // With `scheme` none the weights do not change. `level` is precision.level and sets the weights'
  // dtype.
  Evaluated(const StepCase& of, QuantizeScheme scheme, std::string level = "")
      : config_(of.config), level_(std::move(level)), batch_(whole_batch(of.data)) {
    Task task = task_of(of);
    profile_parameters(*task.module, profile_);
    profile_objectives(task, profile_);
    profile_.train_samples = of.data.size();
    if (scheme != QuantizeScheme::none) {
      const at::NoGradGuard no_grad;
      QuantizedParameters parameters = quantized_of(task, batch_, scheme);
      task = quantized(std::move(task), std::move(parameters));
    }
    run_ = build_run_state(std::move(task), parts("bf16"), /*trains=*/false);
  }

  // `mode`: fp32 or bf16, which weights share unless there is a level.
  Parts parts(const std::string& mode) const {
    RunConfig config = config_;
    config.precision.mode = mode;
    config.precision.level = level_;
    return build_parts(make_plan(config, Machine{}, profile_), nullptr);
  }

  // The outputs of the first `samples`.
  at::Tensor predict(const Parts& parts, int64_t samples) const {
    const at::NoGradGuard no_grad;
    at::Tensor outputs;
    const Batch batch = prepared(batch_.slice(0, samples), run_.task, parts);
    const auto shortage = tanren::predict(
        run_, parts, batch, [&](const Prediction& prediction) { outputs = prediction.outputs; });
    if (shortage) throw std::runtime_error("out of memory: " + shortage->message);
    return outputs;
  }

  // A prompt of the first `prompt` tokens of the batch, and `tokens` that the model adds, each the
  // most probable one.
  std::vector<int64_t> generate(const Parts& parts, int64_t prompt, int64_t tokens) const {
    const at::NoGradGuard no_grad;
    const WindowScope window(parts.plan.precision, parts.ranks->open_windows());
    const AutocastScope autocast(parts.device.type(), parts.plan.precision);
    const at::Tensor ids = batch_["inputs"][0].narrow(0, 0, prompt).contiguous();
    const int64_t* first = ids.const_data_ptr<int64_t>();
    return run_.task.generate({.prompt = std::vector<int64_t>(first, first + prompt),
                               .tokens = tokens,
                               .temperature = 0});
  }

  TensorMap tensors() const { return run_.model_tensors(); }

 private:
  RunConfig config_;
  std::string level_;
  Batch batch_;
  ModelProfile profile_;
  RunState run_;
};

// An Evaluated in one precision.
struct Way {
  std::string name;
  const Evaluated* model;
  Parts parts;

  Way(std::string given_name, const Evaluated& of, const std::string& mode)
      : name(std::move(given_name)), model(&of), parts(of.parts(mode)) {}
  at::Tensor predict(int64_t samples) const { return model->predict(parts, samples); }
};

// A model of the same kind with a few thousand weights (ResNet: ResNet-18 on small images), for a
// run that shows only that everything works.
inline std::optional<StepCase> small_case(const std::string& model) {
  at::manual_seed(1);
  if (model == "resnet50") {
    StepCase made = resnet_case(8, 0, 32, "ResNet-18, 8 images of 32 × 32");
    made.config.model.size = "resnet18";
    return made;
  }
  if (model != "bert" && model != "gpt2") return std::nullopt;
  constexpr int64_t kBatch = 8, kLength = 12, kTokens = 61;
  const bool is_bert = model == "bert";
  TensorMap fields;
  fields.set("inputs", at::randint(1, kTokens, {kBatch, kLength}, at::kLong));
  const std::vector<int64_t> labels =
      is_bert ? std::vector<int64_t>{kBatch} : std::vector<int64_t>{kBatch, kLength};
  fields.set("labels", at::randint(2, labels, at::kLong));
  StepCase made{is_bert ? "a BERT of 2 layers" : "a GPT-2 of 2 layers",
                step_config(model, "", kBatch),
                {{.input_shape = {kLength},
                  .outputs = is_bert ? 2 : kTokens,
                  .class_labels = true,
                  .vocab_size = kTokens},
                 fields,
                 {{"samples", kBatch}, {"tokens", kBatch * kLength}}}};
  made.config.model.num_layers = made.config.model.num_heads = 2;
  made.config.model.hidden_size = 32;
  made.config.model.intermediate_size = 64;
  made.config.model.context_length = 64;
  return made;
}

// The case of step_cases.h, or the small one.
inline StepCase evaluated_case(const std::string& model, bool is_small, int64_t threads) {
  auto made = is_small ? small_case(model) : step_case(model);
  if (!made) throw std::runtime_error("no model " + model);
  made->config.run.threads = threads;
  made->config.run.seed = 1;
  return *made;
}

}  // namespace tanren::bench
