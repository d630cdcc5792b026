// Shared by the checks of a config: a list of problems, one line each, and the common rules. Used
// only by validate.cpp and the validate_<section>.cpp files.
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
  void unused(const std::set<std::string>& changed, const std::string& section,
              const std::vector<std::string>& keys, const std::string& kind_key,
              const std::string& kind);

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

// The checks of one section each; `changed` are the keys that differ from their defaults.
void check_model(Problems& p, const ModelOptions& o, const std::vector<std::string>& known,
                 const std::set<std::string>& changed);
void check_data(Problems& p, const RunConfig& config, const std::vector<std::string>& registered,
                const std::set<std::string>& changed);
// check_images: the image keys of one data section ("data.train."). check_image_pair: both sections
// must prepare images in the same way for the model.
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
