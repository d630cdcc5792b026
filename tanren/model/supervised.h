// supervised: makes a Task from one module and the loss that the config names:
// batch["inputs"] → forward → loss against batch["labels"]. Called by the zoo, and by programs for
// their own modules.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"
#include "tanren/model/losses.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace tanren {

// How many values per sample the module must give: options.outputs, or as many as the data needs
// (1 for bce with two classes). With an appended head it is options.outputs, which must be set.
// ConfigError if loss, label type and counts do not fit.
int64_t num_outputs(const ModelOptions& options, const DataInfo& info);

// The options; if a head is appended and outputs is not set, outputs becomes `width`. For models
// whose trained weights fix the width.
ModelOptions with_trained_width(ModelOptions options, int64_t width);

// Name of the layer that options.append_head adds.
inline constexpr const char* kAppendedHead = "appended";

// One phase, one objective. With options.append_head the module gets a Linear `appended` after its
// outputs. Floating inputs take the dtype of the module's first parameter.
// With class labels the metrics are class_metrics() and predictions are class scores [n, classes]
// (for bce with two classes: {0, logit}). With pictures as labels, predictions are pictures of that
// shape, and picture_metrics() fit too. ConfigError as num_outputs.
Task supervised(std::shared_ptr<torch::nn::Module> module,
                std::function<at::Tensor(const at::Tensor&)> forward, const ModelOptions& options,
                const DataInfo& info);

// The same for a forward that reads more of the batch than "inputs" and casts its inputs itself.
Task supervised_batches(std::shared_ptr<torch::nn::Module> module,
                        std::function<at::Tensor(const Batch&)> forward,
                        const ModelOptions& options, const DataInfo& info);

// Scores of each token, [n, T, vocab_size], against batch["labels"], int64 [n, T]. The loss is
// summed over the labels that are not -100 and counted by "tokens"; the metrics are
// class_metrics(). In training and evaluation no more than options.loss_chunk tokens' scores exist
// at once. `block` is the name of the head's block.
Task token_task(std::shared_ptr<torch::nn::Module> module,
                std::function<TokenHead(const Batch&)> head, std::string block,
                const ModelOptions& options);

// The metrics of a task that predicts each next token: also those of the bytes and words of a text.
void add_text_metrics(Task& task, const ModelOptions& options);

// supervised() for a module with `at::Tensor forward(at::Tensor)`.
template <typename M>
Task supervised(std::shared_ptr<M> module, const ModelOptions& options, const DataInfo& info) {
  return supervised(
      module, [module](const at::Tensor& x) { return module->forward(x); }, options, info);
}

}  // namespace tanren
