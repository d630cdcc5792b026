#include "tanren/predict/predictor.h"

#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/base/text.h"
#include "tanren/predict/batches.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tanren {

namespace {

void refuse_broken(const std::vector<std::string>& broken) {
  const auto first =
      std::find_if(broken.begin(), broken.end(), [](const auto& why) { return !why.empty(); });
  if (first == broken.end()) return;
  throw DataError(fmt::format("[predict] sample {}: {}", first - broken.begin(), *first));
}

}  // namespace

Predictor::Predictor(WholeModel model, int64_t batch)
    : model_(std::move(model)),
      form_(answer_form(model_.task, model_.config.model, model_.info, "predict")),
      encoder_(model_.config, model_.info, form_.kind),
      batch_(std::max<int64_t>(batch, 1)) {
  if (!model_.task.predict) {
    throw ConfigError("[predict] the task has no predict; set task.predict");
  }
  model_.task.module->eval();
}

std::vector<Answer> Predictor::predict(std::vector<Sample> samples) const {
  const at::NoGradGuard no_grad;
  const EncodedSamples encoded = encoder_.encode(std::move(samples));
  refuse_broken(encoded.broken);
  std::vector<int64_t> places(encoded.samples.size());
  std::iota(places.begin(), places.end(), 0);
  std::vector<Answer> all(places.size());
  std::vector<std::string> broken(all.size());
  for (const auto& indices : batches_of(encoded, places, batch_)) {
    const Batch batch = encoder_.batch(encoded, indices, broken);
    refuse_broken(broken);
    const RandomScope random(/*seed=*/0, /*attempt=*/0, batch.ids);
    Answers answers(form_, "predict");
    answers.add(model_.task.predict(batch));
    auto some = answers.take(batch.size());
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto place = static_cast<size_t>(indices[i]);
      if (some[i].has_nan) broken[place] = kNanOutputs;
      all[place] = std::move(some[i]);
    }
    refuse_broken(broken);
  }
  return all;
}

}  // namespace tanren
