#include "tanren/base/layer_order.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

namespace tanren {

namespace {

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Runs of digits anywhere in the name.
std::vector<std::string> numbers_in(const std::string& name) {
  std::vector<std::string> found;
  bool inside = false;
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (digit && !inside) found.emplace_back();
    if (digit) found.back() += c;
    inside = digit;
  }
  return found;
}

// The number that {} stands for if `pattern` matches `name`; -1: no match, 0: a match without {}.
int64_t number_of(const std::string& pattern, const std::string& name) {
  const auto brace = pattern.find("{}");
  if (brace == std::string::npos) return matches(pattern, name) ? 0 : -1;
  for (const auto& number : numbers_in(name)) {
    std::string filled = pattern;
    filled.replace(brace, 2, number);
    if (number.size() < 10 && matches(filled, name)) return std::stoll(number);
  }
  return -1;
}

Layers by_patterns(const std::vector<std::string>& names,
                   const std::vector<std::string>& patterns) {
  Layers layers{std::vector<int64_t>(names.size(), -1), 0};
  for (const auto& pattern : patterns) {
    std::map<int64_t, std::vector<size_t>> members;
    bool found = false;
    for (size_t i = 0; i < names.size(); ++i) {
      const int64_t number = number_of(pattern, names[i]);
      found = found || number >= 0;
      if (number >= 0 && layers.of[i] < 0) members[number].push_back(i);
    }
    if (!found) {
      const std::string near = nearest(pattern, names);
      throw ConfigError("[optimizer] layers: the pattern '" + pattern +
                        "' matches no parameter; the nearest is '" +
                        (near.empty() ? names.front() : near) + "'");
    }
    for (const auto& [number, indices] : members) {
      for (const size_t i : indices) layers.of[i] = layers.count;
      ++layers.count;
    }
  }
  bool rest = false;
  for (auto& layer : layers.of) {
    rest = rest || layer < 0;
    if (layer < 0) layer = layers.count;
  }
  layers.count += rest ? 1 : 0;
  return layers;
}

// "transformer.h.3" of "transformer.h.3.attn.weight"; empty without a number.
std::string block_of(const std::string& name) {
  size_t begin = 0;
  while (begin < name.size()) {
    const size_t dot = std::min(name.find('.', begin), name.size());
    if (is_number(name.substr(begin, dot - begin))) return name.substr(0, dot);
    begin = dot + 1;
  }
  return "";
}

Layers by_blocks(const std::vector<std::string>& names) {
  std::map<std::string, int64_t> known;
  Layers layers{std::vector<int64_t>(names.size(), -1), 0};
  bool before = false, after = false;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string block = block_of(names[i]);
    if (!block.empty()) {
      layers.of[i] = known.try_emplace(block, static_cast<int64_t>(known.size())).first->second;
    } else if (known.empty()) {
      layers.of[i] = -2;
      before = true;
    } else {
      after = true;
    }
  }
  if (known.empty()) {
    throw ConfigError("[optimizer] layer_decay: no parameter's name has a block's number ('" +
                      (names.empty() ? std::string() : names.front()) +
                      "', …); name the layers in optimizer.layers");
  }
  const auto blocks = static_cast<int64_t>(known.size());
  for (auto& layer : layers.of) {
    layer = layer == -2 ? 0 : (layer == -1 ? blocks : layer) + (before ? 1 : 0);
  }
  layers.count = blocks + (before ? 1 : 0) + (after ? 1 : 0);
  return layers;
}

}  // namespace

Layers layers_of(const std::vector<std::string>& names, const std::vector<std::string>& patterns) {
  return patterns.empty() ? by_blocks(names) : by_patterns(names, patterns);
}

std::vector<double> layer_scales(const Layers& layers, double decay) {
  std::vector<double> scales;
  scales.reserve(layers.of.size());
  for (const int64_t layer : layers.of) {
    scales.push_back(std::pow(decay, static_cast<double>(layers.count - 1 - layer)));
  }
  return scales;
}

}  // namespace tanren
