#include "tanren/predict/fit_batch.h"

#include "tanren/base/counted.h"
#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/data/text/token_fields.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

namespace tanren {

namespace {

class ProbeDataset : public Dataset {
 public:
  ProbeDataset(Batch one, DataInfo info) : one_(std::move(one)), info_(std::move(info)) {}
  int64_t size() const override { return int64_t{1} << 20; }
  DataInfo info() const override { return info_; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    Collated made;
    for (const auto& [name, field] : one_.fields) {
      std::vector<int64_t> sizes = field.sizes().vec();
      sizes[0] = std::ssize(indices);
      made.batch.fields.set(name, field.expand(sizes).contiguous());
    }
    made.batch.ids = ids_of(indices);
    made.counts["samples"] = static_cast<double>(indices.size());
    count_tokens(info_, made);
    return made;
  }

 private:
  Batch one_;
  DataInfo info_;
};

}  // namespace

std::unique_ptr<Dataset> probe_dataset(Batch one, DataInfo info) {
  return std::make_unique<ProbeDataset>(std::move(one), std::move(info));
}

int64_t asked_batch(const RunConfig& config, const Plan& plan) {
  if (config.evaluate.batch > 0) return config.evaluate.batch;
  constexpr int64_t kMost = 256;
  // The rows of a table are small, and a forward costs more than they do.
  if (config.data.eval.kind == "csv") return kMost;
  const int64_t all = plan.batch.global_batch;  // of all ranks
  const int64_t one = config.batch.microbatch > 0 ? std::min(config.batch.microbatch, all) : all;
  return std::clamp<int64_t>(one, 1, kMost);
}

int64_t fitted_batch(const Prepared& prepared, int64_t wanted) {
  const Plan& plan = prepared.plan;
  const int64_t room = room_for_step(plan, standing_beside(prepared.fit, plan));
  if (room <= 0) return wanted;
  const StepPredictor predictor = predictor_of(prepared.fit, prepared.config);
  int64_t batch = wanted;
  for (int64_t peak = 0;; batch = (batch + 1) / 2) {
    try {
      peak = predictor.evaluation_peak(plan, batch, /*trains=*/false);
    } catch (const std::exception&) {  // no dry run: halved when memory runs out
      return batch;
    }
    if (fits(peak, room)) break;
    if (batch == 1) {
      throw ConfigError(fmt::format(
          "[predict] memory.limit {} leaves {} for the model and a forward, and one sample takes "
          "{}; raise it",
          size_text(plan.memory.limit_bytes), size_text(room), size_text(peak)));
    }
  }
  if (batch < wanted) {
    log(
        fmt::format("[predict] {} a forward, not {}: more would not fit into memory; "
                    "evaluate.batch sets it",
                    counted(batch, "sample"), wanted));
  }
  return batch;
}

}  // namespace tanren
