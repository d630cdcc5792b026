#include "tanren/predict/made_from.h"

#include "tanren/base/hash.h"
#include "tanren/config/write_config.h"
#include "tanren/data/data_part.h"

namespace tanren {

std::string model_hash(const DescribedModel& model) {
  Hash64 hash;
  for (const auto& [key, text] :
       describe_model(model.description.config, model.description.info, 1)) {
    if (key != "tanren.config") hash.add(text);
  }
  for (const auto& [name, tensor] : model.read.tensors) {
    hash.add(static_cast<int64_t>(part_of(name, tensor).hash));
  }
  return hash_text(hash.value());
}

std::string settings_hash(const RunConfig& config, const std::filesystem::path& out) {
  RunConfig kept;
  kept.run.device = config.run.device;
  kept.model = config.model;
  kept.data.encoding = config.data.encoding;
  kept.data.eval = config.data.eval;
  kept.data.eval.path.clear();
  kept.precision = config.precision;
  kept.predict.scores = config.predict.scores;  // a broken row may be skipped from here on
  Hash64 hash;
  hash.add(to_toml(kept));
  hash.add(out.extension().string());
  return hash_text(hash.value());
}

}  // namespace tanren
