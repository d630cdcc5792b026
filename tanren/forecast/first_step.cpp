#include "tanren/forecast/first_step.h"

#include "tanren/base/one_line.h"
#include "tanren/base/random.h"
#include "tanren/base/text.h"
#include "tanren/forecast/generator_scope.h"
#include "tanren/model/layer_table.h"
#include "tanren/page/table.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/model_dtype.h"
#include "tanren/train/prepared.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace tanren {

namespace {

// Rank 0's share, collated on this thread.
GlobalBatch first_batch(const Plan& plan, const Dataset& train, Cursor start) {
  LoaderOptions options;
  options.global_batch = plan.batch.global_batch;
  options.keep_last = plan.batch.keep_last;
  options.shuffle = plan.data.shuffle;
  options.seed = static_cast<uint64_t>(plan.run.seed);
  options.workers = 0;
  options.world_size = plan.batch.world_size;
  return Loader(train, options, start).next();
}

// "float32", as `tanren convert` has it.
std::string dtype_word(at::ScalarType dtype) {
  return dtype == at::ScalarType::Undefined ? "-" : c10::getDtypeNames(dtype).first;
}

std::string sizes_text(at::IntArrayRef sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

Table table_of_batch(const GlobalBatch& batch, const Plan& plan, int64_t microbatch) {
  Table table{.title = "first batch", .head = {"field", "shape", "dtype"}, .rows = {}, .texts = 3};
  for (const auto& [name, field] : batch.local.fields) {
    table.rows.push_back({name, sizes_text(field.sizes()), dtype_word(field.scalar_type())});
  }
  const int64_t own = batch.local.size();
  const auto all = static_cast<int64_t>(batch.count("samples"));
  table.note = plan.batch.world_size > 1 ? fmt::format("rank 0 of {} has {} of {} samples",
                                                       plan.batch.world_size, own, all)
                                         : fmt::format("{} samples", own);
  if (own > 0) {
    table.note +=
        fmt::format(", in microsteps of {}: {}", microbatch, (own + microbatch - 1) / microbatch);
  }
  return table;
}

Table table_of_layers(const LayerTable& layers, int64_t microbatch) {
  Table table{.title = "layers",
              .head = {"layer", "class", "output shape", "dtype", "parameters", "dtype"},
              .rows = {},
              .texts = 4,
              .note = {},
              .remarks = true};
  for (const LayerRow& row : layers.rows) {
    const bool ran = row.output_dtype != at::ScalarType::Undefined;
    table.rows.push_back({row.name.empty() ? "(model)" : row.name, row.type,
                          ran ? sizes_text(row.output_shape) : "-", dtype_word(row.output_dtype),
                          row.parameters > 0 ? count_text(row.parameters) : "-",
                          dtype_word(row.parameter_dtype)});
  }
  const LayerRow total = layers.total();
  table.note = fmt::format("{} parameters, {} trained; shapes of a training forward of {} samples",
                           count_text(total.parameters), count_text(total.trainable), microbatch);
  if (!layers.mismatch.empty()) {
    constexpr std::string_view kPlace = "[summary] ";
    std::string reason = layers.mismatch;
    if (reason.starts_with(kPlace)) reason.erase(0, kPlace.size());
    table.note += "; after that none are known: " + reason;
  }
  return table;
}

LayerTable layers_of(const Plan& plan, const std::function<Task()>& make_task, const Batch& own,
                     int64_t microbatch) {
  Parts parts{.plan = plan};
  // The layout changes no shape. In the contiguous one the operators are torch's own, which report
  // what they compute.
  parts.plan.memory.channels_last = false;
  const auto make = [&] {
    Task task = make_task();
    move_module(*task.module, at::kCPU, plan.precision);
    return task;
  };
  if (own.size() == 0) {  // fewer samples than ranks
    return training_table(make, Batch(), [](const Task&, const PhaseSpec&, const Batch&) {});
  }
  const Batch piece = own.slice(0, microbatch);
  const auto table = [&](bool with_gradients) {
    return training_table(make, piece,
                          [&](const Task& task, const PhaseSpec& phase, const Batch& shapes) {
                            const Batch fit = prepared(shapes, task, parts);
                            const RandomScope random(static_cast<uint64_t>(plan.run.seed),
                                                     /*attempt=*/0, fit.ids);
                            const AutocastScope autocast(at::kCPU, plan.precision);
                            const at::AutoGradMode gradients(with_gradients);
                            phase.forward(fit);
                          });
  };
  LayerTable layers = table(/*with_gradients=*/false);
  if (layers.mismatch.empty()) return layers;
  // A forward that differentiates needs gradients. For other forwards the table without gradients
  // shows more, because tanren's operators then call torch's.
  LayerTable differentiable = table(/*with_gradients=*/true);
  return differentiable.mismatch.empty() ? differentiable : layers;
}

}  // namespace

std::string first_step_text(const Plan& plan, const std::function<Task()>& make_task,
                            const Dataset& train, Cursor start) {
  const GeneratorScope generators(at::kCPU);
  GlobalBatch batch;
  try {
    batch = first_batch(plan, train, start);
  } catch (const std::exception& error) {  // the loop meets it, too, and saves what there is
    return fmt::format("first batch: not known: {}\n", one_line(error.what()));
  }
  const int64_t own = batch.local.size();
  const int64_t microbatch = plan.batch.microbatch > 0 ? std::min(plan.batch.microbatch, own) : own;
  const std::string text = text_of(table_of_batch(batch, plan, microbatch)) + "\n";
  try {
    const LayerTable layers = layers_of(plan, make_task, batch.local, microbatch);
    return text + text_of(table_of_layers(layers, microbatch));
  } catch (const std::exception& error) {
    return text + fmt::format("layers: not known without memory: {}\n", one_line(error.what()));
  }
}

}  // namespace tanren
