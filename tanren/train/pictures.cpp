#include "tanren/train/pictures.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/eval_mode_scope.h"
#include "tanren/base/log.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/optimizer/average.h"
#include "tanren/train/predict.h"
#include "tanren/train/prepared.h"
#include "tanren/train/undo.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <sstream>

namespace tanren {

namespace {

// If batch norm's statistics are estimated, those of the averaged weights are good only right after
// an estimate, which reads much of the training data. Pictures then use the raw weights.
bool shows_averages(const AveragePlan& plan) {
  return plan.evaluate && plan.buffers != AverageBuffers::estimate;
}

void leave_out(const RunState& run, const Parts& parts) {
  parts.recovery->gauge().release_cache();
  log(fmt::format("[memory] step {}: out of memory with the pictures; they are left out",
                  to_text(run.step())));
}

// Outputs of the batch; undefined if memory ran out.
at::Tensor outputs_of(const RunState& run, const Parts& parts, const Batch& batch) {
  const MustSucceedScope must_succeed;
  const DeviceRetryScope retries(parts.recovery->reserve());
  const at::NoGradGuard no_grad;
  const EvalModeScope eval_mode(*run.task.module);
  const bool is_averaged = shows_averages(parts.plan.average);
  const AverageScope average(is_averaged ? run.averages() : std::vector<WeightAverage*>());
  std::vector<at::Tensor> pieces;
  std::optional<Shortage> shortage;
  // No more samples at once than an evaluation takes, for which memory was planned.
  const int64_t at_once = std::max<int64_t>(1, parts.plan.evaluate.batch);
  for (int64_t begin = 0; begin < batch.size() && !shortage; begin += at_once) {
    const Batch piece = batch.slice(begin, std::min(begin + at_once, batch.size()));
    shortage = predict(run, parts, piece, [&](const Prediction& prediction) {
      pieces.push_back(prediction.outputs.detach());
    });
  }
  if (!shortage && !pieces.empty()) return pieces.size() == 1 ? pieces[0] : at::cat(pieces);
  if (shortage) leave_out(run, parts);
  return {};
}

at::Tensor undone_outputs(const RunState& run, const Parts& parts, const Batch& batch) {
  run.settle();
  const Undo before(run, parts.device, /*with_generators=*/parts.ranks->world().alone());
  try {
    at::Tensor outputs = outputs_of(run, parts, batch);
    before.restore_all();
    return outputs;
  } catch (...) {
    before.restore_after_error();
    throw;
  }
}

// As large as `like`, so that both lie beside each other.
at::Tensor scaled_like(const at::Tensor& pictures, const at::Tensor& like) {
  const auto size = like.sizes().slice(2);
  if (pictures.sizes().slice(2) == size) return pictures;
  return at::upsample_nearest2d(pictures.to(at::kFloat), size);
}

}  // namespace

Batch shown_samples(const Dataset& dataset) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < std::min(kShownSamples, dataset.size()); ++i) indices.push_back(i);
  return collated(dataset, indices).batch;
}

bool are_pictures(const at::Tensor& tensor) {
  return tensor.dim() == 4 && tensor.is_floating_point() &&
         (tensor.size(1) == 1 || tensor.size(1) == 3);
}

void check_are_pictures(const at::Tensor& outputs, int64_t samples, const std::string& fix) {
  if (are_pictures(outputs) && outputs.size(0) == samples) return;
  std::ostringstream text;
  text << "[metrics] the task's outputs for " << samples << " samples are " << outputs.sizes()
       << ", and pictures are [n, 1 or 3, h, w] in [-1, 1]; " << fix
       << ", or let predict return pictures";
  throw ConfigError(text.str());
}

at::Tensor rgb_of(const at::Tensor& pictures) {
  const auto levels = ((pictures.to(at::kFloat).nan_to_num(-1) + 1) * 127.5).clamp(0, 255).round();
  const auto colours = levels.size(1) == 3 ? levels : levels.expand({-1, 3, -1, -1});
  return colours.to(at::kByte).permute({0, 2, 3, 1}).contiguous();
}

namespace {

ImageReport pictures_of(const RunState& run, const Parts& parts, const Batch& batch,
                        const std::string& prefix) {
  ImageReport report;
  report.step = run.step();
  if (batch.size() == 0) return report;
  const Batch shown =
      prepared(batch.slice(0, std::min(kShownSamples, batch.size())), run.task, parts);
  const at::Tensor outputs = undone_outputs(run, parts, shown);
  if (!outputs.defined()) return report;
  check_are_pictures(outputs, shown.size(), "set metrics.images_every = 0");
  std::vector<at::Tensor> columns;
  for (const char* name : {"inputs", "labels"}) {
    const at::Tensor* field = shown.fields.find(name);
    if (field != nullptr && are_pictures(*field)) {
      columns.push_back(rgb_of(scaled_like(*field, outputs)));
    }
  }
  columns.push_back(rgb_of(outputs));
  const at::Tensor rows = host_copies({at::cat(columns, 2)}).front();
  const auto size = static_cast<size_t>(rows[0].numel());
  for (int64_t i = 0; i < rows.size(0); ++i) {
    ImageReport::Picture picture{fmt::format("{}/pictures/{}", prefix, i), rows.size(2),
                                 rows.size(1), std::vector<uint8_t>(size)};
    std::memcpy(picture.rgb.data(), rows[i].const_data_ptr<uint8_t>(), size);
    report.pictures.push_back(std::move(picture));
  }
  return report;
}

}  // namespace

ImageReport make_pictures(const RunState& run, const Parts& parts, const Batch& batch,
                          const std::string& prefix) {
  try {
    return pictures_of(run, parts, batch, prefix);
  } catch (const c10::OutOfMemoryError&) {  // outside of predict, which has told of its own
    leave_out(run, parts);
    return {};
  }
}

}  // namespace tanren
