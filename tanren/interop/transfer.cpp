#include "tanren/interop/transfer.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/check_tensors.h"
#include "tanren/interop/pix2pixhd_folder.h"
#include "tanren/interop/quantized_tensors.h"
#include "tanren/model/supervised.h"
#include "tanren/train/build.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace tanren {

namespace {

// Returns the tensors whose names match no pattern; moves the other names into `names`.
TensorMap without(const TensorMap& tensors, const std::vector<std::string>& patterns,
                  std::vector<std::string>& names) {
  TensorMap rest;
  for (const auto& [name, tensor] : tensors) {
    if (matches_any(patterns, name)) {
      names.push_back(name);
    } else {
      rest.set(name, tensor);
    }
  }
  return rest;
}

// The same for those that match a pattern of `heads` and are missing in `other`.
TensorMap without_heads(const TensorMap& tensors, const TensorMap& other,
                        const std::vector<std::string>& heads, std::vector<std::string>& names) {
  TensorMap rest;
  for (const auto& [name, tensor] : tensors) {
    if (other.find(name) == nullptr && matches_any(heads, name)) {
      names.push_back(name);
    } else {
      rest.set(name, tensor);
    }
  }
  return rest;
}

// The file's tensors in the module's dtypes: weights in bf16 initialise fp32 parameters.
TensorMap with_dtypes_of(const TensorMap& wanted, const TensorMap& found) {
  TensorMap cast;
  for (const auto& [name, tensor] : found) {
    const at::Tensor* own = wanted.find(name);
    const bool floats = own != nullptr && own->is_floating_point() && tensor.is_floating_point();
    cast.set(name, floats ? tensor.to(own->scalar_type()) : tensor);
  }
  return cast;
}

// 8-bit weights that no note describes, such as those of a folder that tanren convert wrote.
void refuse_nameless_8_bits(const torch::nn::Module& module, const TensorMap& found,
                            const ModelOptions& options, const std::string& path) {
  const TensorMap wanted = tensors_of(module);
  for (const auto& [name, tensor] : renamed(found, rename_pairs(options))) {
    if (tensor.scalar_type() != at::kChar || matches_any(options.init_skip, name)) continue;
    const at::Tensor* const own = wanted.find(name);
    if (own == nullptr || !own->is_floating_point()) continue;
    throw ConfigError("[model] " + path + " has 8-bit weights (" + one_line(name) +
                      "), and we read floating weights from there; give the whole model that was "
                      "converted");
  }
}

}  // namespace

std::string InitReport::text(const std::string& path) const {
  std::string line = fmt::format("{} tensors from {}", loaded, path);
  for (const auto& remark : remarks) line += "; " + remark;
  const auto list = [&](const char* what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    const std::vector<std::string> shown(
        names.begin(), names.begin() + std::min<std::ptrdiff_t>(4, names.end() - names.begin()));
    line += std::string("; ") + what + " " + join(shown);
    if (names.size() > shown.size())
      line += fmt::format(" and {} more", names.size() - shown.size());
  };
  list("newly initialised:", skipped);
  list("left in the file:", ignored);
  return line;
}

std::vector<std::pair<std::string, std::string>> rename_pairs(const ModelOptions& options) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& text : options.init_rename) {
    const auto equals = text.find('=');
    pairs.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return pairs;
}

std::vector<std::string> appended_heads(const ModelOptions& options) {
  if (options.append_head == 0) return {};
  return {std::string(kAppendedHead) + ".*"};
}

InitReport init_from_file(torch::nn::Module& module, const ModelOptions& options) {
  const std::string& path = options.init_from;
  if (is_pix2pixhd_folder(path)) {
    const bool has_discriminator = std::filesystem::exists(discriminator_file(path));
    return init_from_state(module, read_pix2pixhd_folder(path), options, path,
                           has_discriminator ? std::vector<std::string>{}
                                             : std::vector<std::string>{"discriminator.*"});
  }
  StateDict state = read_expanded(path).state;
  refuse_nameless_8_bits(module, state.tensors, options, path);
  return init_from_state(module, std::move(state), options, path, appended_heads(options));
}

InitReport init_from_state(torch::nn::Module& module, StateDict state, const ModelOptions& options,
                           const std::string& path, const std::vector<std::string>& heads) {
  InitReport report;
  report.remarks = state.remarks;
  TensorMap found = renamed(state.tensors, rename_pairs(options));
  const TensorMap all = tensors_of(module);
  for (const auto& pattern : options.init_skip) {
    const auto fits = [&](const auto& item) { return matches(pattern, item.first); };
    if (std::none_of(all.begin(), all.end(), fits) &&
        std::none_of(found.begin(), found.end(), fits)) {
      throw ConfigError("[model] init_skip \"" + pattern +
                        "\" matches no tensor of the model or of " + path + "; fix or drop it");
    }
  }
  TensorMap wanted = without(all, options.init_skip, report.skipped);
  found = without(found, options.init_skip, report.ignored);
  const TensorMap both = wanted;
  wanted = without_heads(wanted, found, heads, report.skipped);
  found = with_dtypes_of(wanted, without_heads(found, both, heads, report.ignored));
  check_names_and_shapes(wanted, found, path,
                         "leave tensors out with model.init_skip, rename with model.init_rename");
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : wanted) at::Tensor(tensor).copy_(found.at(name));
  report.loaded = static_cast<int64_t>(wanted.size());
  return report;
}

}  // namespace tanren
