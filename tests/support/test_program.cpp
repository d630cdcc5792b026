// tanren with seven more models, for tests of processes.
// torch_dropout: uses torch's own dropout, which draws from the process's generator. Each rank
// appends what it drew in training to $TORCH_DROPOUT_DRAWS<rank>, a line per forward.
// waiting: an mlp whose predict call number $WAIT_AT (from 1) creates the file $WAIT_FILE<rank> and
// waits until the test removes it, so that an evaluation lasts as long as the test wants.
// mortal: an mlp whose process kills itself when it comes to $DIE_POINT for the $DIE_AT-th time
// (from 1): the "forward" or the "backward" of a microbatch (the latter on the last stage alone),
// an "update" by AdamW, or an "evaluation" of a batch.
// hanging: an mlp whose first forward in training never ends, whatever signal comes, and uses no
// processor time.
// diverging: an mlp whose loss in training is not a number.
// talking: an mlp that prints more than a pipe holds when it is made.
// leaving: ends its process with code 0 when it is made.
#include "tanren/cli.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/model/registry.h"
#include "tanren/model/supervised.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/nn/modules/linear.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace {

class TorchDropout : public torch::nn::Module {
 public:
  TorchDropout(int64_t inputs, int64_t outputs)
      : linear_(register_module("linear", torch::nn::Linear(inputs, outputs))) {}

  at::Tensor forward(const at::Tensor& inputs) {
    const at::Tensor dropped = at::dropout(inputs.flatten(1), 0.5, is_training());
    const char* file = std::getenv("TORCH_DROPOUT_DRAWS");
    const char* rank = std::getenv("RANK");
    if (is_training() && !tanren::is_dry(dropped) && file != nullptr && rank != nullptr) {
      std::ofstream(file + std::string(rank), std::ios::app)
          << dropped.ne(0)
                 .sum(0)
                 .to(at::kDouble)
                 .dot(at::arange(dropped.size(1), at::kDouble))
                 .item<double>()
          << "\n";
    }
    return linear_(dropped);
  }

 private:
  torch::nn::Linear linear_;
};

std::string from_environment(const char* name, const std::string& otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : text;
}

tanren::Task waiting(tanren::ModelOptions options, const tanren::DataInfo& info) {
  options.kind = "mlp";
  tanren::Task task = tanren::ModelRegistry().make(options, info);
  task.predict = [inner = task.predict,
                  calls = std::make_shared<int64_t>(0)](const tanren::Batch& batch) {
    const bool is_real = !tanren::is_dry(batch["inputs"]);
    if (is_real && ++*calls == std::stoll(from_environment("WAIT_AT", "0"))) {
      const std::string file =
          from_environment("WAIT_FILE", "wait") + from_environment("RANK", "0");
      std::ofstream(file).close();
      while (std::filesystem::exists(file)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    return inner(batch);
  };
  return task;
}

bool dies_at(std::string_view point) { return from_environment("DIE_POINT", "") == point; }

void come_to(std::string_view point) {
  static std::atomic<int64_t> times = 0;
  if (!dies_at(point)) return;
  if (++times == std::stoll(from_environment("DIE_AT", "0"))) ::kill(::getpid(), SIGKILL);
}

std::unique_ptr<at::ObserverContext> see_update(const at::RecordFunction& function) {
  if (std::string_view(function.name()) == "aten::_fused_adamw_") come_to("update");
  return nullptr;
}

tanren::Task mortal(tanren::ModelOptions options, const tanren::DataInfo& info) {
  options.kind = "mlp";
  tanren::Task task = tanren::ModelRegistry().make(options, info);
  auto& forward = task.phases.front().forward;
  forward = [inner = std::move(forward)](const tanren::Batch& batch) {
    if (tanren::is_dry(batch["inputs"])) return inner(batch);
    come_to("forward");
    tanren::Terms terms = inner(batch);
    const at::Tensor& sum = terms.front().sum;
    if (sum.requires_grad()) {
      sum.register_hook([](const at::Tensor& /*gradient*/) { come_to("backward"); });
    }
    return terms;
  };
  task.predict = [inner = std::move(task.predict)](const tanren::Batch& batch) {
    if (!tanren::is_dry(batch["inputs"])) come_to("evaluation");
    return inner(batch);
  };
  return task;
}

tanren::Task hanging(tanren::ModelOptions options, const tanren::DataInfo& info) {
  options.kind = "mlp";
  tanren::Task task = tanren::ModelRegistry().make(options, info);
  auto& forward = task.phases.front().forward;
  forward = [inner = std::move(forward)](const tanren::Batch& batch) {
    while (!tanren::is_dry(batch["inputs"])) ::pause();
    return inner(batch);
  };
  return task;
}

tanren::Task diverging(tanren::ModelOptions options, const tanren::DataInfo& info) {
  options.kind = "mlp";
  tanren::Task task = tanren::ModelRegistry().make(options, info);
  auto& forward = task.phases.front().forward;
  forward = [inner = std::move(forward)](const tanren::Batch& batch) {
    tanren::Terms terms = inner(batch);
    terms.front().sum = terms.front().sum * std::numeric_limits<double>::quiet_NaN();
    return terms;
  };
  return task;
}

tanren::Task talking(tanren::ModelOptions options, const tanren::DataInfo& info) {
  options.kind = "mlp";
  std::cout << std::string(100'000, 'x') << std::endl;
  return tanren::ModelRegistry().make(options, info);
}

tanren::Task leaving(const tanren::ModelOptions& /*options*/, const tanren::DataInfo& /*info*/) {
  ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  tanren::ModelRegistry models;
  models.add(
      "torch_dropout", [](const tanren::ModelOptions& options, const tanren::DataInfo& info) {
        int64_t inputs = 1;
        for (const int64_t size : info.input_shape) inputs *= size;
        auto module = std::make_shared<TorchDropout>(inputs, tanren::num_outputs(options, info));
        return tanren::supervised(module, options, info);
      });
  models.add("waiting", waiting);
  models.add("mortal", mortal);
  models.add("hanging", hanging);
  models.add("diverging", diverging);
  models.add("talking", talking);
  models.add("leaving", leaving);
  if (dies_at("update")) at::addGlobalCallback(at::RecordFunctionCallback(see_update));
  return tanren::cli::main(argc, argv, models);
}
