#include "tanren/model/package_fields.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <ATen/ATen.h>

#include <limits>
#include <map>
#include <span>

namespace tanren {

namespace {

constexpr int64_t kNoBound = std::numeric_limits<int32_t>::max();

std::string text_of(const PackageManifest::Range& range) {
  std::string text = range.max >= kNoBound ? fmt::format("at least {}", range.min)
                                           : fmt::format("{} to {}", range.min, range.max);
  return range.multiple > 1 ? fmt::format("{} in multiples of {}", text, range.multiple) : text;
}

class PackageFields {
 public:
  PackageFields(const PackageManifest& manifest, const std::string& package)
      : manifest_(manifest), package_(package) {}

  void add(const Batch& batch, bool trains, std::vector<at::Tensor>& inputs) const {
    std::map<std::string_view, int64_t> sizes;  // of this batch
    for (const auto& field : manifest_.fields) {
      const at::Tensor* found = batch.fields.find(field.name);
      if (found == nullptr) {
        std::string fields;
        for (const auto& [name, tensor] : batch.fields)
          fields += (fields.empty() ? "" : ", ") + name;
        refuse(
            fmt::format("wants the field {}, and the data have {} alone; give the field its "
                        "name in the data, or export the package without it",
                        field.name, fields));
      }
      const at::ScalarType type = package_type(field.dtype);
      if (found->scalar_type() != type &&
          !(found->is_floating_point() && at::isFloatingType(type))) {
        refuse(fmt::format("wants {} in the field {}, and the data have {}", field.dtype,
                           field.name, c10::toString(found->scalar_type())));
      }
      check_sizes(field, *found, trains, sizes);
      check_values(field, *found);
      inputs.push_back(found->to(type).contiguous());
    }
  }

 private:
  // A prediction may have fewer samples than the least batch, because batch norm needs two samples
  // only in training.
  void check_sizes(const PackageManifest::Field& field, const at::Tensor& tensor, bool trains,
                   std::map<std::string_view, int64_t>& known) const {
    if (tensor.dim() != std::ssize(field.sizes)) {
      refuse(fmt::format("wants {} dimensions in the field {}, and the batch has {}",
                         field.sizes.size(), field.name, c10::str(tensor.sizes())));
    }
    for (size_t dim = 0; dim < field.sizes.size(); ++dim) {
      const auto& wanted = field.sizes[dim];
      const int64_t size = tensor.size(static_cast<int64_t>(dim));
      if (wanted.name.empty()) {
        if (size == wanted.number) continue;
        refuse(fmt::format("wants {} at dim {} of the field {}, and the batch has {}",
                           wanted.number, dim, field.name, size));
      }
      const auto& range = manifest_.ranges.at(wanted.name);
      const bool has_least = trains || wanted.name != "batch";
      if ((has_least && size < range.min) || size > range.max || size % range.multiple != 0) {
        refuse(fmt::format("takes {} {}, and dim {} of the field {} has {}; {}", wanted.name,
                           text_of(range), dim, field.name, size,
                           wanted.name == "batch"
                               ? "set batch.global_batch and batch.microbatch to fit"
                               : "let the data fit, or export the package with a wider range"));
      }
      const auto [first, is_first] = known.try_emplace(wanted.name, size);
      if (!is_first && first->second != size) {
        refuse(
            fmt::format("wants the same {} in all fields, and dim {} of the field {} has {} "
                        "beside {}",
                        wanted.name, dim, field.name, size, first->second));
      }
    }
  }

  // A kernel that gets an index beyond its table ends the process, because it throws inside a
  // parallel loop. On an accelerator the values are not checked here: the device reports such an
  // index.
  void check_values(const PackageManifest::Field& field, const at::Tensor& tensor) const {
    if (!field.values || !tensor.is_cpu() || tensor.numel() == 0) return;
    const at::Tensor values = tensor.to(at::kLong).contiguous();
    const auto [least, most] = *field.values;
    for (const int64_t value : std::span(values.const_data_ptr<int64_t>(), values.numel())) {
      if ((value >= least && value <= most) || value == field.ignored) continue;
      refuse(fmt::format("takes {} to {} in the field {}, and the batch has {}; fix the data",
                         least, most, field.name, value));
    }
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(one_line("[model] the package " + package_ + " " + what));
  }

  const PackageManifest& manifest_;
  const std::string& package_;
};

}  // namespace

at::ScalarType package_type(std::string_view word) {
  static const std::map<std::string_view, at::ScalarType> types = {
      {"float32", at::kFloat},     {"float64", at::kDouble}, {"float16", at::kHalf},
      {"bfloat16", at::kBFloat16}, {"int64", at::kLong},     {"int32", at::kInt},
      {"int16", at::kShort},       {"int8", at::kChar},      {"uint8", at::kByte},
      {"bool", at::kBool}};
  return types.at(word);
}

std::string package_sizes(const PackageManifest& manifest) {
  std::vector<std::string> texts;
  for (const auto& [name, range] : manifest.ranges) texts.push_back(name + " " + text_of(range));
  return join(texts);
}

void add_package_fields(const PackageManifest& manifest, const std::string& package,
                        const Batch& batch, bool trains, std::vector<at::Tensor>& inputs) {
  PackageFields(manifest, package).add(batch, trains, inputs);
}

}  // namespace tanren
