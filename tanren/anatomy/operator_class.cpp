#include "tanren/anatomy/operator_class.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <optional>

namespace tanren {

namespace {

// Parts of names, looked for in this order: "layer_norm" before "norm".
struct Part {
  std::string_view text;
  OperatorClass of;
};

constexpr auto kContract = OperatorClass::contractions;
constexpr auto kNormalise = OperatorClass::normalisations;
constexpr auto kMove = OperatorClass::data_movement;

// Whole names, for operators that a part would misclassify.
constexpr Part kWhole[] = {
    {"mm", kContract},        {"bmm", kContract},     {"mv", kContract},     {"addmm", kContract},
    {"addbmm", kContract},    {"baddbmm", kContract}, {"addmv", kContract},  {"dot", kContract},
    {"vdot", kContract},      {"linear", kContract},  {"matmul", kContract}, {"einsum", kContract},
    {"bilinear", kContract},  {"outer", kContract},   {"addr", kContract},   {"lstm", kContract},
    {"sum", kNormalise},      {"mean", kNormalise},   {"var", kNormalise},   {"std", kNormalise},
    {"max", kNormalise},      {"min", kNormalise},    {"amax", kNormalise},  {"amin", kNormalise},
    {"prod", kNormalise},     {"any", kNormalise},    {"all", kNormalise},   {"cumsum", kNormalise},
    {"norm", kNormalise},     {"topk", kNormalise},   {"sort", kNormalise},  {"argmax", kNormalise},
    {"var_mean", kNormalise}, {"t", kMove},           {"to", kMove},         {"cat", kMove},
    {"stack", kMove},         {"index", kMove},       {"pad", kMove},        {"roll", kMove},
    {"flip", kMove},          {"zero_", kMove},       {"fill_", kMove},      {"zeros", kMove},
    {"ones", kMove},          {"full", kMove},        {"arange", kMove},     {"tril", kMove},
    {"triu", kMove},          {"chunk", kMove},       {"take", kMove},       {"alias", kMove},
};

constexpr Part kParts[] = {
    {"convolution", kContract},
    {"_dot_product", kContract},
    {"attention", kContract},
    {"rnn_layer", kContract},
    {"addmm", kContract},
    {"quantized_linear", kContract},
    {"conv2d", kContract},
    {"conv1d", kContract},
    {"fused_lstm_cell", OperatorClass::element_wise},
    {"softmax", kNormalise},
    {"_norm", kNormalise},
    {"cross_entropy", kNormalise},
    {"nll_loss", kNormalise},
    {"logsumexp", kNormalise},
    {"_pool", kNormalise},
    {"mse_loss", kNormalise},
    {"l1_loss", kNormalise},
    {"reduce", kNormalise},
    {"embedding", kMove},
    {"copy", kMove},
    {"clone", kMove},
    {"contiguous", kMove},
    {"view", kMove},
    {"reshape", kMove},
    {"permute", kMove},
    {"transpose", kMove},
    {"expand", kMove},
    {"select", kMove},
    {"slice", kMove},
    {"split", kMove},
    {"narrow", kMove},
    {"squeeze", kMove},
    {"flatten", kMove},
    {"gather", kMove},
    {"scatter", kMove},
    {"index_", kMove},
    {"empty", kMove},
    {"strided", kMove},
    {"upsample", kMove},
    {"image_columns", kMove},
    {"im2col", kMove},
    {"col2im", kMove},
    {"new_", kMove},
    {"zeros_like", kMove},
    {"ones_like", kMove},
    {"full_like", kMove},
    {"unfold", kMove},
    {"detach", kMove},
    {"repeat", kMove},
    {"resize", kMove},
    {"set_", kMove},
};

// "aten::add_" → "add_".
std::string_view without_space(std::string_view name) {
  const size_t colon = name.rfind(':');
  return colon == std::string_view::npos ? name : name.substr(colon + 1);
}

bool is_in(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  });
}

// Class of a kernel of a compiled graph (Inductor). Its name lists all fused operators, or names
// the shim of one operator.
std::optional<OperatorClass> class_of_compiled(std::string_view name) {
  if (is_in(name, {"cpp_fused_", "triton_"})) {
    const bool reduces = is_in(name, {"softmax", "_norm", "_sum", "_mean", "_var", "_amax"});
    return reduces ? kNormalise : OperatorClass::element_wise;
  }
  const bool is_shim = name.starts_with("aoti_torch_");
  if (is_shim && is_in(name, {"_mm_out", "_bmm_out", "_mkl_linear"})) return kContract;
  return std::nullopt;
}

}  // namespace

OperatorClass class_of_operator(std::string_view full) {
  const std::string_view name = without_space(full);
  if (const auto compiled = class_of_compiled(name)) return *compiled;
  for (const Part& whole : kWhole) {
    if (name == whole.text) return whole.of;
  }
  for (const Part& part : kParts) {
    if (name.find(part.text) != std::string_view::npos) return part.of;
  }
  return OperatorClass::element_wise;
}

bool only_allocates(std::string_view full) {
  const std::string_view name = without_space(full);
  return name.rfind("empty", 0) == 0 || name.rfind("new_empty", 0) == 0 ||
         name.rfind("resize", 0) == 0 || name.rfind("set_", 0) == 0;
}

bool gathers(std::string_view full) {
  constexpr std::string_view kNames[] = {"embedding", "index_select", "gather", "index", "take"};
  return std::find(std::begin(kNames), std::end(kNames), without_space(full)) != std::end(kNames);
}

}  // namespace tanren
