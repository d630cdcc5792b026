#include "tanren/checkpoint/check_tensors.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"

#include <unordered_map>

#include <ATen/ATen.h>

namespace tanren {

namespace {

constexpr size_t kMaxShown = 10;

std::string shape_text(const at::Tensor& tensor) {
  return c10::str(tensor.sizes()) + " " + c10::toString(tensor.scalar_type());
}

// "2 missing (a [3] Float, b [4] Float); ", or nothing.
std::string part(const std::string& kind, std::vector<std::string> names) {
  if (names.empty()) return "";
  const size_t all = names.size();
  if (all > kMaxShown) {
    names.resize(kMaxShown);
    names.push_back(fmt::format("and {} more", all - kMaxShown));
  }
  return fmt::format("{} {} ({}); ", all, kind, join(names));
}

}  // namespace

void check_names_and_shapes(const TensorMap& expected, const TensorMap& found,
                            const std::string& what, const std::string& advice) {
  std::unordered_map<std::string, const at::Tensor*> saved;
  for (const auto& [name, tensor] : found) saved.emplace(name, &tensor);
  std::vector<std::string> missing, unexpected, different;
  for (const auto& [name, tensor] : expected) {
    const auto other = saved.find(name);
    if (other == saved.end()) {
      missing.push_back(name + " " + shape_text(tensor));
      continue;
    }
    const at::Tensor& theirs = *other->second;
    const bool is_widened = theirs.scalar_type() == at::kFloat && tensor.is_floating_point() &&
                            tensor.element_size() < theirs.element_size();
    const bool has_type = theirs.scalar_type() == tensor.scalar_type() || is_widened;
    if (theirs.sizes() != tensor.sizes() || !has_type) {
      different.push_back(name + " is " + shape_text(theirs) + ", here " + shape_text(tensor));
    }
    saved.erase(other);
  }
  for (const auto& [name, tensor] : found) {
    if (saved.count(name) > 0) unexpected.push_back(name + " " + shape_text(tensor));
  }
  if (missing.empty() && unexpected.empty() && different.empty()) return;
  throw CheckpointError(fmt::format("[checkpoint] {} belongs to another model: {}{}{}{}", what,
                                    part("missing", missing), part("unexpected", unexpected),
                                    part("different", different), advice));
}

}  // namespace tanren
