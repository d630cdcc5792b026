// What the checks of a config share: a list of problems, one line each, and the rules as words.
// Used by validate.cpp and the validate_<section>.cpp files alone.
#pragma once

#include "tanren/config/run_config.h"

#include <charconv>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tanren {

// Beyond it a count is a slip of the keyboard, and sums and products of counts would overflow.
constexpr int64_t kAbsurd = int64_t{1} << 40;
constexpr int64_t kAbsurdWidth = int64_t{1} << 24;

// Gathers problems; each check states the rule as its words, the key first.
class Problems {
 public:
  void check(bool fine, const std::string& problem);
  void one_of(const std::string& key, const std::string& value,
              const std::vector<std::string>& known);
  // low ≤ value < 2^40
  void count(const std::string& key, int64_t value, int64_t low);
  // Sizes that are multiplied or allocated: 1 ≤ each, and their product is no absurd one.
  void sizes(const std::string& key, const std::vector<int64_t>& values);
  void at_least(const std::string& key, int64_t value, int64_t low);
  // [low, high) or [low, high]
  void within(const std::string& key, double value, double low, double high, bool closed);
  void positive(const std::string& key, double value);
  void not_negative(const std::string& key, double value);
  // Keys that were changed although the `kind_key` makes them do nothing.
  void unused(const std::set<std::string>& changed, const std::string& section,
              const std::vector<std::string>& keys, const std::string& kind_key,
              const std::string& kind);

  std::vector<std::string> found;
  struct Unused {
    std::string key, because;  // because of the value that this key has
  };
  std::vector<Unused> unused_keys;  // as unused() found them, each a problem too
  std::map<std::string, std::vector<std::string>> words;  // of each key that went through one_of
};

// Whether the whole text is a number of this type.
template <typename T>
bool reads_as(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// The checks of one section each; `changed` are the keys that differ from their defaults.
void check_model(Problems& p, const ModelOptions& o, const std::vector<std::string>& known,
                 const std::set<std::string>& changed);
void check_data(Problems& p, const RunConfig& config, const std::vector<std::string>& registered,
                const std::set<std::string>& changed);
// Of one data section ("data.train.") the keys of images; that both sections feed one model alike.
void check_images(Problems& p, const std::string& section, const SourceOptions& o,
                  const std::set<std::string>& changed);
void check_image_pair(Problems& p, const DataOptions& o);
// The same for text and tokens.
void check_token_data(Problems& p, const std::string& section, const SourceOptions& o,
                      const std::set<std::string>& changed);
void check_token_pair(Problems& p, const DataOptions& o);
void check_optimizer(Problems& p, const RunConfig& config, const std::set<std::string>& changed);
void check_observation(Problems& p, const RunConfig& config);
void check_parallel(Problems& p, const RunConfig& config, const std::set<std::string>& changed);
void check_selection(Problems& p, const RunConfig& config, const std::set<std::string>& changed);

}  // namespace tanren
