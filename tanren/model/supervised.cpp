#include "tanren/model/supervised.h"

#include "tanren/base/error.h"
#include "tanren/base/metric_names.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/blocks/block.h"
#include "tanren/config/kinds.h"
#include "tanren/model/layers.h"
#include "tanren/model/losses.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tanren {
namespace {

using Loss = std::function<Term(const at::Tensor& outputs, const at::Tensor& labels)>;

Loss loss_named(const ModelOptions& options) {
  if (options.loss == "cross_entropy") {
    return
        [smoothing = options.label_smoothing](const at::Tensor& outputs, const at::Tensor& labels) {
          return cross_entropy(outputs, labels, smoothing);
        };
  }
  if (options.loss == "bce") return bce;
  return options.loss == "mse" ? mse : l1;
}

void check_loss(const ModelOptions& options, const DataInfo& info) {
  const Keys& known = loss_kinds();
  const std::string& loss = options.loss;
  if (std::find(known.begin(), known.end(), loss) == known.end()) {
    const std::string near = nearest(loss, known);
    throw ConfigError(
        fmt::format("[model] loss '{}' is unknown; {}", loss,
                    near.empty() ? "there are " + join(known) : "did you mean '" + near + "'?"));
  }
  const bool is_cross_entropy = loss == "cross_entropy";
  if (is_cross_entropy && !info.class_labels) {
    throw ConfigError(
        info.target_shape.empty()
            ? "[model] loss cross_entropy needs class labels, the data has values; set "
              "model.loss = \"mse\", or data.train.label_type = \"class\""
            : "[model] loss cross_entropy needs class labels, the data has pictures as targets; "
              "set model.loss = \"l1\" or \"mse\"");
  }
  if (!is_cross_entropy && loss != "bce" && info.class_labels) {
    throw ConfigError(
        fmt::format("[model] loss {} needs values as labels, the data has classes; "
                    "set model.loss = \"cross_entropy\", or data.train.label_type = "
                    "\"value\"",
                    loss));
  }
  if (loss == "bce" && info.class_labels && info.outputs > 2) {
    throw ConfigError(
        fmt::format("[model] loss bce needs two classes, the data has {}; set "
                    "model.loss = \"cross_entropy\"",
                    info.outputs));
  }
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1)) {
    throw ConfigError(
        fmt::format("[model] label_smoothing = {} is outside [0, 1)", options.label_smoothing));
  }
  if (options.label_smoothing != 0 && !is_cross_entropy) {
    throw ConfigError(
        fmt::format("[model] label_smoothing = {} is for cross_entropy, the loss is "
                    "{}; set it to 0",
                    options.label_smoothing, loss));
  }
}

// Class scores, one column per class, so that accuracy is an argmax for every loss.
at::Tensor scores(const at::Tensor& outputs, bool binary) {
  if (!binary) return outputs;
  const at::Tensor logit = outputs.reshape({-1, 1});
  return at::cat({at::zeros_like(logit), logit}, 1);
}

// Reshapes outputs to pictures if the labels are pictures and the last layer gives a row of values.
at::Tensor in_shape_of(const at::Tensor& labels, const at::Tensor& outputs) {
  return labels.dim() == 4 && outputs.dim() == 2 ? outputs.reshape(labels.sizes()) : outputs;
}

// Number of outputs of the last layer.
int64_t final_outputs(const ModelOptions& options, const DataInfo& info) {
  check_loss(options, info);
  const bool binary = options.loss == "bce" && info.class_labels;
  const int64_t needed = binary ? 1 : info.outputs;
  const bool appends = options.append_head > 0;
  const int64_t asked = appends ? options.append_head : options.outputs;
  const int64_t outputs = asked != 0 ? asked : needed;
  const bool may_exceed = options.loss == "cross_entropy";
  if (outputs < 1 || outputs < needed || (outputs > needed && !may_exceed)) {
    throw ConfigError(
        fmt::format("[model] {} = {}: loss {} on this data needs {}{}; set {}",
                    appends ? "append_head" : "outputs", outputs, options.loss,
                    may_exceed ? "at least " : "", std::max<int64_t>(needed, 1),
                    appends ? "it to that" : "model.outputs = 0 to take it from the data"));
  }
  return outputs;
}

}  // namespace

int64_t num_outputs(const ModelOptions& options, const DataInfo& info) {
  const int64_t last = final_outputs(options, info);
  if (options.append_head == 0) return last;
  if (options.outputs > 0) return options.outputs;
  throw ConfigError(
      "[model] append_head needs to know the width of the model before it; set model.outputs");
}

ModelOptions with_trained_width(ModelOptions options, int64_t width) {
  if (options.append_head > 0 && options.outputs == 0) options.outputs = width;
  return options;
}

Task supervised(std::shared_ptr<torch::nn::Module> module,
                std::function<at::Tensor(const at::Tensor&)> forward, const ModelOptions& options,
                const DataInfo& info) {
  // Has the module's dtype, also after the module is moved to another. It is a matrix if there is
  // one, because a norm's vectors may stay in fp32 beside weights of 16 bits.
  at::Tensor reference;
  for (const at::Tensor& parameter : module->parameters()) {
    if (!parameter.is_floating_point()) continue;
    const bool is_better = reference.defined() && reference.dim() < 2 && parameter.dim() >= 2;
    if (!reference.defined() || is_better) reference = parameter;
  }
  const auto run = [forward = std::move(forward), reference](const Batch& batch) {
    const at::Tensor& inputs = batch["inputs"];
    const bool casts = reference.defined() && inputs.is_floating_point();
    return forward(casts ? inputs.to(reference.scalar_type()) : inputs);
  };
  return supervised_batches(std::move(module), run, options, info);
}

Task supervised_batches(std::shared_ptr<torch::nn::Module> module,
                        std::function<at::Tensor(const Batch&)> forward,
                        const ModelOptions& options, const DataInfo& info) {
  const int64_t outputs = final_outputs(options, info);
  std::shared_ptr<Linear> head;
  if (options.append_head > 0) {
    head = module->register_module(
        kAppendedHead, std::make_shared<Linear>(num_outputs(options, info), options.append_head));
  }
  const auto run = [forward = std::move(forward), head](const Batch& batch) {
    at::Tensor below = forward(batch);
    if (head == nullptr) return below;
    return run_block(kAppendedHead, [&] { return head->forward(below); });
  };
  const Loss loss = loss_named(options);
  const bool binary = options.loss == "bce" && info.class_labels;

  Task task;
  task.module = std::move(module);
  PhaseSpec phase;
  phase.forward = [run, loss](const Batch& batch) {
    return Terms{loss(run(batch), batch["labels"])};
  };
  task.phases.push_back(std::move(phase));
  task.loss_fields = {"labels"};
  const bool is_picture = !info.target_shape.empty();
  task.predict = [run, loss, binary, is_picture](const Batch& batch) {
    const at::Tensor outputs = run(batch);
    const at::Tensor& labels = batch["labels"];
    const Term term = loss(outputs, labels);
    return Prediction{
        {term}, is_picture ? in_shape_of(labels, outputs) : scores(outputs, binary), labels};
  };
  if (info.class_labels) {
    task.metrics = class_metrics();
    task.classes = binary ? 2 : outputs;
    const bool is_likelihood = options.loss == "cross_entropy" && options.label_smoothing == 0;
    if (is_likelihood) task.metrics.emplace_back("perplexity");
  } else if (options.loss == "mse" || options.loss == "l1") {
    task.metrics = value_metrics();
    const auto more = is_picture ? picture_metrics() : std::vector<std::string>();
    task.metrics.insert(task.metrics.end(), more.begin(), more.end());
  }
  return task;
}

Task token_task(std::shared_ptr<torch::nn::Module> module,
                std::function<TokenHead(const Batch&)> head, std::string block,
                const ModelOptions& options) {
  const LinearCrossEntropyOptions loss{options.label_smoothing, options.loss_chunk};
  Task task;
  task.module = std::move(module);
  PhaseSpec phase;
  phase.forward = [head, block, loss](const Batch& batch) {
    const TokenHead below = head(batch);
    Term term;
    run_block(block, [&] {
      term = token_cross_entropy(below, batch["labels"], loss);
      return term.sum;
    });
    return Terms{term};
  };
  task.phases.push_back(std::move(phase));
  task.predict = [head, block, smoothing = loss.label_smoothing](const Batch& batch) {
    const TokenHead below = head(batch);
    const at::Tensor logits = run_block(block, [&] { return below.logits(); });
    const at::Tensor& labels = batch["labels"];
    return Prediction{
        {token_cross_entropy(logits, labels, smoothing)}, logits.transpose(1, 2), labels};
  };
  task.predict_rows = [head, block, loss](const Batch& batch) {
    const TokenHead below = head(batch);
    const at::Tensor labels = batch["labels"].reshape({-1});
    TokenHead rows = below;
    rows.states = run_block(block, [&] { return below.states.reshape({labels.numel(), -1}); });
    const auto part = [rows, labels, block, loss](int64_t begin, int64_t end) {
      const at::Tensor scores = run_block(block, [&] {
        TokenHead some = rows;
        some.states = rows.states.narrow(0, begin, end - begin);
        return some.logits();
      });
      const at::Tensor targets = labels.narrow(0, begin, end - begin);
      return Prediction{
          {token_cross_entropy(scores, targets, loss.label_smoothing)}, scores, targets};
    };
    return PredictionRows{labels.numel(), chunk_rows(loss, below.weight.size(0)), part};
  };
  task.metrics = class_metrics();
  if (options.label_smoothing == 0) task.metrics.emplace_back("perplexity");
  return task;
}

void add_text_metrics(Task& task, const ModelOptions& options) {
  if (options.label_smoothing != 0) return;  // the loss is no likelihood
  const auto more = text_metrics();
  task.metrics.insert(task.metrics.end(), more.begin(), more.end());
}

}  // namespace tanren
