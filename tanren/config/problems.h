// Shared by the checks of a config: a list of problems, one line each, and the common rules. Used
// only by validate.cpp and the files in sections/.
#pragma once

#include "tanren/config/run_config.h"

#include <charconv>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tanren {

// A count or width of this size is a typing error, and sums and products of counts would overflow.
constexpr int64_t kAbsurd = int64_t{1} << 40;
constexpr int64_t kAbsurdWidth = int64_t{1} << 24;

// Collects problems. Each check words its rule as a line that begins with the key.
class Problems {
 public:
  void check(bool fine, const std::string& problem);
  void one_of(const std::string& key, const std::string& value,
              const std::vector<std::string>& known);
  // low ≤ value < 2^40
  void count(const std::string& key, int64_t value, int64_t low);
  // Sizes that are multiplied or allocated: at most 64, each at least 1 and below 2^24. The product
  // of a shape is below 2^40.
  void sizes(const std::string& key, const std::vector<int64_t>& values);
  void at_least(const std::string& key, int64_t value, int64_t low);
  // [low, high) or [low, high]
  void within(const std::string& key, double value, double low, double high, bool closed);
  void positive(const std::string& key, double value);
  void not_negative(const std::string& key, double value);
  // Reports changed keys that have no effect because of the value `kind` of `kind_key`.
  void unused(const std::string& section, const std::vector<std::string>& keys,
              const std::string& kind_key, const std::string& kind);

  std::set<std::string> changed;  // keys of the config that differ from their defaults
  std::vector<std::string> found;
  struct Unused {
    std::string key, because;  // `key` has no effect because of the value of `because`
  };
  std::vector<Unused> unused_keys;                        // from unused(); each is in `found`, too
  std::map<std::string, std::vector<std::string>> words;  // allowed, by key, from one_of()
};

// Whether the whole text is a number of this type.
template <typename T>
bool reads_as(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// The checks of one section each, in sections/<section>.cpp, in the order in which validate.cpp
// calls them. Each reports the problems whose line begins with one of its keys.
void check_run(Problems& p, const RunConfig& config, const std::string& accelerator);
void check_model(Problems& p, const ModelOptions& o, const std::vector<std::string>& known);
void check_data(Problems& p, const RunConfig& config, const std::vector<std::string>& registered);
void check_batch(Problems& p, const BatchOptions& o);
void check_precision(Problems& p, const PrecisionOptions& o);
void check_optimizer(Problems& p, const RunConfig& config);
void check_schedule(Problems& p, const RunConfig& config);
void check_clip(Problems& p, const ClipOptions& o);
void check_objectives(Problems& p, const RunConfig& config);
void check_guard(Problems& p, const GuardOptions& o);
void check_memory(Problems& p, const MemoryOptions& o);
void check_parallel(Problems& p, const RunConfig& config);
void check_evaluate(Problems& p, const EvaluateOptions& o);
void check_checkpoint(Problems& p, const CheckpointOptions& o);
void check_metrics(Problems& p, const MetricsOptions& o);
void check_generate(Problems& p, const GenerateOptions& o);
void check_predict(Problems& p, const PredictOptions& o);
void check_quantize(Problems& p, const RunConfig& config);
void check_sweep(Problems& p, const RunConfig& config, const std::string& accelerator);
void check_best(Problems& p, const RunConfig& config);  // checkpoint.best
void check_early_stop(Problems& p, const RunConfig& config);
void check_average(Problems& p, const RunConfig& config);
void check_evaluated(Problems& p, const EvaluateOptions& o);  // evaluate.checkpoint

// The keys of one data section ("data.train.") about images, and about texts and tokens.
void check_images(Problems& p, const std::string& section, const SourceOptions& o);
void check_token_data(Problems& p, const std::string& section, const SourceOptions& o);
// Whether both data sections give the model the same kind of tokens.
void check_token_pair(Problems& p, const DataOptions& o);

// The keys of one data section about the columns of a table, and whether both sections read them in
// the same way.
void check_table(Problems& p, const std::string& section, const SourceOptions& o);
void check_columns_pair(Problems& p, const DataOptions& o);

// A metric that steers the run must be measured during the run, and its direction must be known.
// `switch_key` of `section` turned it on.
void check_steering(Problems& p, const RunConfig& config, const std::string& section,
                    const std::string& switch_key, const std::string& metric,
                    const std::string& mode);
// The second half of check_steering: `metric` is measured, and its direction is known.
void check_metric(Problems& p, const RunConfig& config, const std::string& section,
                  const std::string& metric, const std::string& mode);

}  // namespace tanren
