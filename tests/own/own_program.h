// A user's own program, for tests of faulty programs. Its model and data are correct, and each has
// a place where a test can break it. It runs under any verb of the command line.
#pragma once

#include "tanren/base/testing.h"
#include "tanren/cli.h"
#include "tanren/data/dataset.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/model/supervised.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tanren::testing {

// 24 samples of six numbers, each of one of three classes.
class OwnPoints : public Dataset {
 public:
  // Changes a collated batch of the given samples.
  using Spoil = std::function<void(Collated&, const std::vector<int64_t>&)>;
  explicit OwnPoints(Spoil spoil, DataInfo info = {.input_shape = {6}, .outputs = 3})
      : spoil_(std::move(spoil)), info_(std::move(info)) {}
  int64_t size() const override { return 24; }
  DataInfo info() const override { return info_; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    Collated collated;
    collated.batch.ids = at::tensor(indices, at::kLong);
    const at::Tensor column = collated.batch.ids.unsqueeze(1).to(at::kFloat);
    collated.batch.fields.set("inputs", at::sin(column * at::arange(1, 7)));
    collated.batch.fields.set("labels", collated.batch.ids % 3);
    collated.counts["samples"] = static_cast<double>(indices.size());
    if (spoil_) spoil_(collated, indices);
    return collated;
  }

 private:
  Spoil spoil_;
  DataInfo info_;
};

class OwnNet : public torch::nn::Module {
 public:
  OwnNet() : body(register_module("body", torch::nn::Linear(6, 8))) {
    head = register_module("head", torch::nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return head(at::relu(body(x))); }

  torch::nn::Linear body, head{nullptr};
};

// The correct task, which tests break.
inline Task own_task(const ModelOptions& options, const DataInfo& info) {
  return supervised(std::make_shared<OwnNet>(), options, info);
}

using OwnFactory = std::function<Task(const ModelOptions&, const DataInfo&)>;
using OwnHook = std::function<void(const Batch&)>;

// The task of `factory`, with `hook` called before each forward that is not a dry run.
inline OwnFactory before_forward(OwnHook hook, OwnFactory factory = own_task) {
  return [hook = std::move(hook), factory = std::move(factory)](const ModelOptions& options,
                                                                const DataInfo& info) {
    Task task = factory(options, info);
    task.phases[0].forward = [hook, inner = task.phases[0].forward](const Batch& batch) {
      if (!is_dry(batch["inputs"])) hook(batch);
      return inner(batch);
    };
    return task;
  };
}

// The same for predict.
inline OwnFactory before_predict(OwnHook hook, OwnFactory factory = own_task) {
  return [hook = std::move(hook), factory = std::move(factory)](const ModelOptions& options,
                                                                const DataInfo& info) {
    Task task = factory(options, info);
    task.predict = [hook, inner = task.predict](const Batch& batch) {
      if (!is_dry(batch["inputs"])) hook(batch);
      return inner(batch);
    };
    return task;
  };
}

struct OwnProgram {
  TemporaryFolder folder;
  OwnFactory factory = own_task;
  OwnPoints::Spoil spoil_train, spoil_eval;
  DataInfo info = {.input_shape = {6}, .outputs = 3};
  std::function<void()> on_open;  // called when data is opened
  bool evaluates = false;
  std::string out, err;

  std::filesystem::path at(const std::string& name) const { return folder.path() / name; }
  std::filesystem::path run() const { return at("run"); }

  // Runs a verb and returns its exit code; `out` and `err` get what it printed.
  int go(const std::string& verb, const std::vector<std::string>& words = {}) {
    std::ofstream(at("run.toml"))
        << "[run]\nname = \"own\"\nsteps = 4\nthreads = 1\n[model]\nkind = \"own\"\n"
        << "[batch]\nglobal_batch = 8\nmicrobatch = 4\n[precision]\nmode = \"fp32\"\n"
        << "[data]\nworkers = 0\nshuffle = false\n[data.train]\nkind = \"points\"\n"
        << (evaluates ? "[data.eval]\nkind = \"points\"\n" : "");
    std::vector<std::string> all{"own", verb};
    if (verb == "run" || verb == "plan" || verb == "summary" || verb == "anatomy") {
      all.push_back(at("run.toml").string());
    }
    if (verb == "run") all.insert(all.end(), {"--out", run().string(), "--quiet"});
    all.insert(all.end(), words.begin(), words.end());
    return go(all);
  }

  int go(std::vector<std::string> words) {
    ModelRegistry models;
    models.add("own", [this](const ModelOptions& options, const DataInfo& of) {
      return factory(options, of);
    });
    DatasetRegistry datasets;
    datasets.add("points", [this](const SourceOptions&, const std::string& what, const DataInfo*) {
      if (on_open) on_open();
      return std::make_unique<OwnPoints>(what == "data.train" ? spoil_train : spoil_eval, info);
    });
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = cli::main(static_cast<int>(words.size()), pointers.data(),
                               Registry(std::move(models), std::move(datasets)));
    out = ::testing::internal::GetCapturedStdout();
    err = ::testing::internal::GetCapturedStderr();
    return code;
  }

  // Expects one line of error output and no stack trace.
  void expect_one_line() const {
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
    EXPECT_EQ(err.find("frame #"), std::string::npos) << err;
  }
  // The number of attempts in the run's log.
  int64_t attempts() const {
    std::ifstream log(run() / "log.jsonl");
    int64_t count = 0;
    for (std::string line; std::getline(log, line);) {
      count += line.starts_with("{\"attempt\":") ? 1 : 0;
    }
    return count;
  }
  bool has_checkpoint(int64_t step) const {
    return std::filesystem::exists(run() / "checkpoints" / ("step-" + std::to_string(step)));
  }
};

}  // namespace tanren::testing
