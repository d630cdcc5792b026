// Shared by the tests of errors and stops in a user's program: a model in which any interrupted
// forward would leave a trace, and functions that compare two runs of it.
#pragma once

#include "tests/own/own_program.h"

#include "tanren/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <cmath>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace tanren::testing {

// Has all the state in which an error could leave a trace: batch norm's statistics, a buffer that
// predict adds to, and torch's own generator, from which every forward draws.
class FragileNet : public torch::nn::Module {
 public:
  FragileNet()
      : body_(register_module("body", torch::nn::Linear(6, 8))),
        norm_(register_module("norm", torch::nn::BatchNorm1d(8))),
        head_(register_module("head", torch::nn::Linear(8, 3))) {
    seen_ = register_buffer("seen", at::zeros({}));
  }
  at::Tensor forward(const at::Tensor& x) {
    if (!is_dry(x)) drawn_ = at::rand({});
    return head_(at::dropout(at::relu(norm_(body_(x))), 0.4, is_training()));
  }
  // Draws once more and adds the draw to `seen`.
  at::Tensor predict(const at::Tensor& x) {
    if (!is_dry(x)) seen_ += at::rand({}) + 1;
    return forward(x);
  }

 private:
  torch::nn::Linear body_;
  torch::nn::BatchNorm1d norm_;
  torch::nn::Linear head_;
  at::Tensor seen_, drawn_;
};

inline Task fragile_task(const ModelOptions& options, const DataInfo& info) {
  auto net = std::make_shared<FragileNet>();
  Task task = supervised(net, options, info);
  task.predict = [net](const Batch& batch) {
    const at::Tensor outputs = net->predict(batch["inputs"]);
    return Prediction{{cross_entropy(outputs, batch["labels"])}, outputs, batch["labels"]};
  };
  return task;
}

// Throws from call `first` on, counted from 1.
inline OwnHook failing_from(int64_t first) {
  return [first, calls = std::make_shared<int64_t>(0)](const Batch&) {
    if (++*calls >= first) throw std::runtime_error("it failed");
  };
}

inline Snapshot checkpoint_of(const OwnProgram& program, int64_t step) {
  return read_checkpoint(program.run() / "checkpoints" / ("step-" + std::to_string(step)));
}

inline bool same_value(const Value& a, const Value& b) {
  const auto* one = std::get_if<double>(&a);
  const auto* other = std::get_if<double>(&b);
  return a == b || (one != nullptr && other != nullptr && std::isnan(*one) && std::isnan(*other));
}

// Expects weights, their averages, buffers, the optimizer's state, counters and the generator to be
// bitwise equal. Only the values named …judged_step and …_by may differ.
inline void expect_same_state(const OwnProgram& a, const OwnProgram& b, int64_t step) {
  ASSERT_TRUE(a.has_checkpoint(step) && b.has_checkpoint(step));
  const Snapshot one = checkpoint_of(a, step), other = checkpoint_of(b, step);
  for (const auto part :
       {&Snapshot::model, &Snapshot::optimizer, &Snapshot::average, &Snapshot::run}) {
    ASSERT_EQ((one.*part).tensors.size(), (other.*part).tensors.size());
    for (const auto& [name, tensor] : (one.*part).tensors) {
      EXPECT_TRUE(at::equal(tensor, (other.*part).tensors.at(name))) << name;
    }
  }
  for (const auto& [name, value] : one.run.values) {
    if (name.ends_with("judged_step") || name.ends_with("_by")) continue;
    ASSERT_EQ(other.run.values.count(name), 1U) << name;
    EXPECT_TRUE(same_value(value, other.run.values.at(name))) << name;
  }
}

inline void train(OwnProgram& program) {
  program.factory = fragile_task;
  ASSERT_EQ(program.go("run"), 0) << program.err;
}

// Raises SIGTERM in call number `call`, counted from 1.
inline OwnHook stopping_at(int64_t call) {
  return [call, calls = std::make_shared<int64_t>(0)](const Batch&) {
    if (++*calls == call) std::raise(SIGTERM);
  };
}

// Options for averaged weights whose batch norm statistics are estimated before each evaluation.
inline std::vector<std::string> averaging(std::vector<std::string> more = {}) {
  for (const char* key : {"average.kind=swa", "average.start=1", "evaluate.every=2",
                          "evaluate.batch=4", "average.buffers=estimate"}) {
    more.insert(more.end(), {"--set", key});
  }
  return more;
}

inline const std::vector<std::string> kTwoRanks{
    "--set", "parallel.ranks=threads", "--set", "parallel.replicas=2", "--set", "run.threads=2"};

inline bool has_sample(const at::Tensor& ids, int64_t from) {
  return ids.ge(from).any().item<bool>();
}

}  // namespace tanren::testing
