#include "tanren/sweep/corners.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/identity.h"
#include "tanren/config/metric_mode.h"
#include "tanren/config/objective_keys.h"
#include "tanren/config/read_config.h"
#include "tanren/config/renamed_keys.h"
#include "tanren/config/space_rules.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace tanren {

namespace {

// A choice, or an end of a range.
int64_t num_ends(const Space& space, size_t dimension) {
  return space.is_range(dimension) ? 2 : space.num_choices(dimension);
}

double end_at(const Space& space, size_t dimension, int64_t number) {
  if (!space.is_range(dimension)) return static_cast<double>(number);
  const DimensionOptions& range = space.dimensions()[dimension];
  return number == 0 ? *range.low : *range.high;
}

// Keeps each point once.
class Corners {
 public:
  explicit Corners(const Space& space) : space_(space) {}
  void add(const std::vector<int64_t>& numbers) {
    SpacePoint point = space_.point(
        [&](size_t dimension) { return end_at(space_, dimension, numbers[dimension]); });
    std::string key;
    for (const auto& [name, value] : space_.values_of(point)) key += name + "=" + value + "\n";
    if (seen_.insert(key).second) points.push_back(std::move(point));
  }
  std::vector<SpacePoint> points;

 private:
  const Space& space_;
  std::set<std::string> seen_;
};

// The lines of an error without "[config] ". Also without a place that is "--set …: ", because
// the corner already names the values.
std::vector<std::string> problems_in(std::string_view error) {
  std::vector<std::string> lines;
  while (!error.empty()) {
    std::string_view line = take_line(error);
    constexpr std::string_view kRoom = "[config] ", kSet = "--set ";
    if (line.starts_with(kRoom)) line.remove_prefix(kRoom.size());
    const size_t colon = line.find(": ");
    if (line.starts_with(kSet) && colon != std::string_view::npos) line.remove_prefix(colon + 2);
    lines.emplace_back(line);
  }
  return lines;
}

}  // namespace

Space space_of(const RunConfig& config) {
  RunConfig copy = config;
  std::vector<DimensionOptions> dimensions = config.sweep.space;
  for (const DimensionOptions& dimension : dimensions) add_objective(copy, dimension.key);
  const std::vector<Field> fields = fields_of(copy);
  for (DimensionOptions& dimension : dimensions) {
    const Field* field = find_field(fields, dimension.key);
    const bool are_whole = field != nullptr && takes_whole_numbers(*field);
    if (are_whole && dimension.values.empty()) dimension.whole = true;
  }
  return Space(std::move(dimensions));
}

StudyOptions study_options_of(const RunConfig& config, int64_t steps) {
  const SweepOptions& asked = config.sweep;
  const int64_t every = config.evaluate.every;
  const bool is_asha = asked.scheduler == "asha", is_pbt = asked.scheduler == "pbt";
  StudyOptions options;
  options.sampler = asked.sampler;
  options.scheduler = asked.scheduler;
  options.trials = asked.trials;
  options.metric = asked.metric;
  options.lower_is_better = lower_is_better(asked.metric, asked.mode).value_or(true);
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.steps = steps;
  if (is_asha) options.first_rung = asked.first_rung > 0 ? asked.first_rung : every;
  if (is_asha) options.reduction = asked.reduction;
  if (is_pbt) options.interval = asked.interval > 0 ? asked.interval : every;
  return options;
}

ConfigSource config_source(const std::filesystem::path& file, const std::vector<std::string>& sets,
                           const KnownKinds& known) {
  read_config(file, sets, known);  // also refuses what is no config file
  return with_sets(
      {.text = read_file(file), .file = std::filesystem::absolute(file).lexically_normal()}, sets,
      known);
}

ConfigSource with_sets(ConfigSource source, const std::vector<std::string>& sets,
                       const KnownKinds& known) {
  RunConfig config = config_of(source, sets, known);
  const std::vector<Field> fields = fields_of(config);
  for (const std::string& set : sets) {
    const std::string key = current_key(set.substr(0, set.find('=')));
    const Field* field = find_field(fields, key);
    const bool is_path =
        field != nullptr && field->is<std::string>() &&
        (field->info.text == TextKind::file || field->info.text == TextKind::file_or_name);
    std::erase_if(source.sets, [&](const std::string& before) {
      return current_key(before.substr(0, before.find('='))) == key;
    });
    source.sets.push_back(is_path ? key + "=" + field->as<std::string>() : set);
  }
  return source;
}

RunConfig config_of(const ConfigSource& source, const std::vector<std::string>& more,
                    const KnownKinds& known) {
  std::vector<std::string> all = source.sets;
  all.insert(all.end(), more.begin(), more.end());
  RunConfig config =
      parse_config(source.text, source.file.string(), source.file.parent_path(), all, known);
  if (config.run.name.empty()) config.run.name = source.file.stem().string();
  return config;
}

RunConfig trial_config(const ConfigSource& source, const TrialValues& values,
                       const KnownKinds& known) {
  std::vector<std::string> more;
  for (const auto& [key, value] : values) more.push_back(key + "=" + value);
  RunConfig config = config_of(source, more, known);
  config.sweep = {};
  std::erase_if(config.asked, [](const std::string& key) { return key.starts_with("sweep."); });
  return config;
}

bool is_as_written(const ConfigSource& source, const TrialValues& values, const KnownKinds& known) {
  return all_changes(trial_config(source, {}, known), trial_config(source, values, known)).empty();
}

std::vector<SpacePoint> corners_of(const Space& space, int64_t most) {
  Corners corners(space);
  double all = 1;
  for (size_t i = 0; i < space.size(); ++i) all *= static_cast<double>(num_ends(space, i));
  std::vector<int64_t> numbers(space.size(), 0);
  if (all <= static_cast<double>(most)) {
    for (bool has_more = true; has_more;) {
      corners.add(numbers);
      has_more = false;
      for (size_t i = space.size(); i-- > 0 && !has_more;) {  // counts, the last one fastest
        has_more = ++numbers[i] < num_ends(space, i);
        if (!has_more) numbers[i] = 0;
      }
    }
    return corners.points;
  }
  std::vector<int64_t> last;
  for (size_t i = 0; i < space.size(); ++i) last.push_back(num_ends(space, i) - 1);
  for (const std::vector<int64_t>& others : {numbers, last}) {
    for (size_t i = 0; i < space.size(); ++i) {
      std::vector<int64_t> one = others;
      // A dimension exists only where its condition holds.
      for (auto [at, choice] = space.condition(i); at < space.size();) {
        one[at] = choice;
        std::tie(at, choice) = space.condition(at);
      }
      for (int64_t number = 0; number < num_ends(space, i); ++number) {
        one[i] = number;
        corners.add(one);
      }
    }
  }
  return corners.points;
}

std::vector<std::string> corner_problems(const ConfigSource& source, const Space& space,
                                         const KnownKinds& known) {
  std::vector<std::string> lines;
  std::set<std::string> seen;
  for (const SpacePoint& corner : corners_of(space)) {
    const TrialValues values = space.values_of(corner);
    try {
      trial_config(source, values, known);
    } catch (const ConfigError& error) {
      std::vector<std::string> shown;
      for (const auto& [key, value] : values) shown.push_back(key + "=" + value);
      for (const std::string& problem : problems_in(error.what())) {
        if (!seen.insert(problem).second) continue;
        lines.push_back("[sweep] " + join(shown, " ") + ": " + problem);
      }
    }
  }
  return lines;
}

}  // namespace tanren
