#include "tanren/interop/torch_optimizer.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <charconv>
#include <set>

namespace tanren {

namespace {

// Removes the number before the next dot from `path` and returns it; nothing if there is no number.
std::optional<int64_t> take_number(std::string_view& path) {
  int64_t number = 0;
  const auto parsed = std::from_chars(path.data(), path.data() + path.size(), number);
  const auto used = static_cast<size_t>(parsed.ptr - path.data());
  if (parsed.ec != std::errc() || number < 0 || used >= path.size() || path[used] != '.') return {};
  path.remove_prefix(used + 1);
  return number;
}

bool take(std::string_view& path, std::string_view start) {
  if (path.substr(0, start.size()) != start) return false;
  path.remove_prefix(start.size());
  return true;
}

struct Found {
  std::map<int64_t, std::map<int64_t, int64_t>> parameters;  // of each group, by position
  std::map<int64_t, std::map<int64_t, std::string>> names;   // the same
  std::map<int64_t, std::map<std::string, Value>> options;   // of each group
  std::map<int64_t, State> state;

  void add_group_value(std::string_view path, const Value& value) {
    const auto group = take_number(path);
    if (!group) return;
    std::string_view rest = path;
    const bool is_parameter = take(rest, "params."), is_name = take(rest, "param_names.");
    if (!is_parameter && !is_name) {
      options[*group][std::string(path)] = value;
      return;
    }
    const auto place = take_number_alone(rest);
    if (!place) return;
    if (const auto* number = std::get_if<int64_t>(&value)) parameters[*group][*place] = *number;
    if (const auto* name = std::get_if<std::string>(&value)) names[*group][*place] = *name;
  }

  static std::optional<int64_t> take_number_alone(std::string_view text) {
    int64_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return {};
    return number;
  }
};

// The different prefixes before "param_groups.0." in the keys.
std::set<std::string> prefixes_of(const State& content) {
  constexpr std::string_view kFirst = "param_groups.0.";
  std::set<std::string> prefixes;
  for (const auto& [path, value] : content.values) {
    const auto at = path.find(kFirst);
    if (at != std::string::npos && (at == 0 || path[at - 1] == '.'))
      prefixes.insert(path.substr(0, at));
  }
  return prefixes;
}

TorchOptimizer optimizer_at(const std::string& prefix, const WeightsFile& file,
                            const std::string& path) {
  const auto fail = [&](const std::string& what) {
    throw CheckpointError("[checkpoint] " + path + ": the optimizer " + what +
                          "; save it again with torch.save");
  };
  Found found;
  for (const auto& [name, value] : file.content.values) {
    std::string_view rest = name;
    if (!take(rest, prefix)) continue;
    if (take(rest, "param_groups.")) {
      found.add_group_value(rest, value);
    } else if (take(rest, "state.")) {
      const auto number = take_number(rest);
      if (number) found.state[*number].values[std::string(rest)] = value;
    }
  }
  for (const auto& [name, tensor] : file.content.tensors) {
    std::string_view rest = name;
    if (!take(rest, prefix) || !take(rest, "state.")) continue;
    const auto number = take_number(rest);
    if (number) found.state[*number].tensors.set(rest, tensor);
  }
  TorchOptimizer optimizer;
  optimizer.name = prefix.substr(0, prefix.find_last_not_of('.') + 1);
  std::set<int64_t> numbers;
  std::set<int64_t> groups;
  for (const auto& [index, options] : found.options) groups.insert(index);
  for (const auto& [index, parameters] : found.parameters) groups.insert(index);
  if (groups.empty()) fail("has no group of parameters");
  for (const int64_t index : groups) {
    auto& group = optimizer.groups.emplace_back();
    group.options = found.options[index];
    for (const auto& [place, number] : found.parameters[index]) {
      if (!numbers.insert(number).second) fail(fmt::format("has parameter {} twice", number));
      group.parameters.push_back(number);
    }
    for (const auto& [place, name] : found.names[index]) group.names.push_back(name);
    if (!group.names.empty() && group.names.size() != group.parameters.size()) {
      fail(fmt::format("has {} names for {} parameters", group.names.size(),
                       group.parameters.size()));
    }
  }
  for (const auto& [number, state] : found.state) {
    if (numbers.count(number) == 0) {
      fail(fmt::format("has state of parameter {}, which no group has", number));
    }
  }
  optimizer.state = std::move(found.state);
  return optimizer;
}

}  // namespace

std::vector<TorchOptimizer> torch_optimizers_of(const WeightsFile& file, const std::string& path) {
  std::vector<TorchOptimizer> optimizers;
  for (const std::string& prefix : prefixes_of(file.content))
    optimizers.push_back(optimizer_at(prefix, file, path));
  return optimizers;
}

PtValue to_pt(const TorchOptimizer& optimizer) {
  PtValue state = PtValue::dict();
  for (const auto& [number, of] : optimizer.state) {
    PtValue entry = PtValue::dict();
    for (const auto& [name, tensor] : of.tensors) entry.add(Value(name), PtValue::of(tensor));
    for (const auto& [name, value] : of.values) entry.add(Value(name), PtValue::of(value));
    state.add(Value(number), std::move(entry));
  }
  PtValue groups = PtValue::list();
  for (const auto& group : optimizer.groups) {
    PtValue entry = PtValue::dict();
    for (const auto& [name, value] : group.options) {
      if (name == "betas.1") continue;
      if (name == "betas.0") {
        entry.add(Value(std::string("betas")),
                  PtValue::tuple({PtValue::of(value), PtValue::of(group.options.at("betas.1"))}));
      } else {
        entry.add(Value(name), PtValue::of(value));
      }
    }
    PtValue names = PtValue::list(), numbers = PtValue::list();
    for (const auto& name : group.names) names.items.push_back(PtValue::of(Value(name)));
    for (const auto number : group.parameters) numbers.items.push_back(PtValue::of(Value(number)));
    if (!group.names.empty()) entry.add(Value(std::string("param_names")), std::move(names));
    entry.add(Value(std::string("params")), std::move(numbers));
    groups.items.push_back(std::move(entry));
  }
  PtValue root = PtValue::dict();
  root.add(Value(std::string("state")), std::move(state));
  root.add(Value(std::string("param_groups")), std::move(groups));
  return root;
}

}  // namespace tanren
