#include "tanren/config/space_rules.h"

#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/config/fields.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tanren {

namespace {

constexpr int64_t kMostPoints = 100000;

// The dimension of that key; null if there is none.
const DimensionOptions* dimension_of(const std::vector<DimensionOptions>& space,
                                     const std::string& key) {
  const auto found = std::find_if(space.begin(), space.end(),
                                  [&](const DimensionOptions& one) { return one.key == key; });
  return found == space.end() ? nullptr : &*found;
}

// Gathers the problems of one dimension.
class DimensionRules {
 public:
  DimensionRules(const DimensionOptions& dimension, std::vector<SpaceProblem>& problems)
      : d_(dimension), problems_(problems) {}

  void range_or_choices() {
    const bool is_range = d_.low || d_.high;
    if (is_range && !d_.values.empty()) {
      report("has values and a range; keep one");
    } else if (is_range) {
      range();
    } else if (d_.values.empty()) {
      report("has neither low and high nor values; give one");
    } else {
      choices();
    }
  }

  void condition(const std::vector<DimensionOptions>& space) {
    if (d_.when.empty()) return;
    const auto condition = condition_of(d_.when);
    if (!condition) return report("when \"" + d_.when + "\" is no KEY=VALUE");
    const auto& [key, value] = *condition;
    const DimensionOptions* other = dimension_of(space, key);
    if (other == nullptr) {
      std::vector<std::string> keys;
      keys.reserve(space.size());
      for (const DimensionOptions& one : space) keys.push_back(one.key);
      const std::string near = nearest(key, keys);
      return report("when names " + key + ", which is no dimension" +
                    (near.empty() ? "; add it" : "; nearest: " + near));
    }
    if (other->values.empty()) {
      return report("when names " + key + ", which is a range; only values can be a condition");
    }
    if (std::find(other->values.begin(), other->values.end(), value) == other->values.end()) {
      report("when names " + value + ", which is none of the values of " + key + ": " +
             join(other->values));
    }
    if (is_in_circle(space)) report("when leads back to " + d_.key + " itself; drop one condition");
  }

 private:
  void report(const std::string& what) { problems_.push_back({d_.key, what}); }

  void range() {
    if (!d_.low || !d_.high) {
      return report(std::string("has no ") + (d_.low ? "high" : "low") + "; give both ends");
    }
    const double low = *d_.low, high = *d_.high;
    if (!std::isfinite(low) || !std::isfinite(high)) return report("has an end that is not finite");
    if (low >= high) {
      report(fmt::format("low {} is not below high {}; swap them, or give values", to_text(low),
                         to_text(high)));
    }
    if (d_.scale != "linear" && d_.scale != "log") {
      report("scale \"" + d_.scale + "\" is unknown; one of linear, log");
    }
    if (d_.scale == "log" && low <= 0) {
      report("scale log needs low above 0, not " + to_text(low));
    }
    const bool are_whole = std::floor(low) == low && std::floor(high) == high;
    if (d_.whole && !are_whole) {
      report(fmt::format("takes whole numbers, and its ends are {} and {}", to_text(low),
                         to_text(high)));
    }
    if (d_.whole && std::max(std::abs(low), std::abs(high)) > 1e15) {
      report("has ends beyond 1e15, where whole numbers are not exact");
    }
    if (d_.points && (*d_.points < 2 || *d_.points > kMostPoints)) {
      report(fmt::format("points is {}; give 2 to {}", *d_.points, kMostPoints));
    }
  }

  void choices() {
    std::set<std::string> seen;
    const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    for (const std::string& value : d_.values) {
      if (std::any_of(value.begin(), value.end(), is_control)) {  // tables and lines show it
        report("has a control character in the value " + one_line(value) + "; take it out");
      }
      if (!seen.insert(value).second) report("has the value " + value + " twice; drop one");
    }
    if (d_.points) report("has points, which only a range has; drop them");
    if (d_.whole) report("has whole, which only a range has; drop it");
    if (d_.scale != "linear") report("has a scale, which only a range has; drop it");
  }

  // Whether the conditions lead from the dimension back to it.
  bool is_in_circle(const std::vector<DimensionOptions>& space) const {
    const DimensionOptions* at = &d_;
    for (size_t i = 0; i < space.size(); ++i) {
      const auto condition = condition_of(at->when);
      at = condition ? dimension_of(space, condition->first) : nullptr;
      if (at == nullptr) return false;
      if (at->key == d_.key) return true;
    }
    return false;  // the circle does not include the dimension
  }

  const DimensionOptions& d_;
  std::vector<SpaceProblem>& problems_;
};

}  // namespace

std::optional<std::pair<std::string, std::string>> condition_of(const std::string& when) {
  const size_t equals = when.find('=');
  if (equals == std::string::npos) return std::nullopt;
  const std::string_view text = when;
  std::pair<std::string, std::string> condition(trimmed(text.substr(0, equals)),
                                                trimmed(text.substr(equals + 1)));
  if (condition.first.empty() || condition.second.empty()) return std::nullopt;
  return condition;
}

bool takes_whole_numbers(const Field& field) {
  return field.is<int64_t>() || field.is<std::optional<int64_t>>() ||
         field.key == "batch.global_batch";  // a text, for it also takes "epoch"
}

std::vector<SpaceProblem> space_problems(const std::vector<DimensionOptions>& space) {
  std::vector<SpaceProblem> problems;
  std::set<std::string> keys;
  for (const DimensionOptions& dimension : space) {
    if (dimension.key.empty()) {
      problems.push_back({"", "a dimension has no key; name what it searches"});
    } else if (!keys.insert(dimension.key).second) {
      problems.push_back({dimension.key, "is there twice; drop one"});
    }
    DimensionRules rules(dimension, problems);
    rules.range_or_choices();
    rules.condition(space);
  }
  return problems;
}

}  // namespace tanren
