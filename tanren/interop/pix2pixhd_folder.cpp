#include "tanren/interop/pix2pixhd_folder.h"

#include "tanren/base/text.h"

#include <array>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr const char* kGenerator = "latest_net_G.pth";
constexpr const char* kDiscriminator = "latest_net_D.pth";
constexpr std::array<std::pair<const char*, std::string_view>, 2> kParts = {
    {{kGenerator, "generator."}, {kDiscriminator, "discriminator."}}};

bool is_statistic(std::string_view name) {
  return name.ends_with(".running_mean") || name.ends_with(".running_var") ||
         name.ends_with(".num_batches_tracked");
}

}  // namespace

bool is_pix2pixhd_folder(const fs::path& folder) {
  return fs::is_directory(folder) && fs::exists(folder / kGenerator);
}

fs::path discriminator_file(const fs::path& folder) { return folder / kDiscriminator; }

StateDict read_pix2pixhd_folder(const fs::path& folder) {
  StateDict all;
  size_t statistics = 0;
  for (const auto& [name, prefix] : kParts) {
    const fs::path file = folder / name;
    if (!fs::exists(file)) {
      all.remarks.push_back(fmt::format("there is no {}", name));
      continue;
    }
    const StateDict part = state_dict_of(read_weights(file));
    for (const std::string& remark : part.remarks) {
      all.remarks.push_back(fmt::format("{}: {}", name, remark));
    }
    for (const auto& [own, tensor] : part.tensors) {
      if (is_statistic(own)) {
        ++statistics;
        continue;
      }
      all.tensors.set(std::string(prefix) + own, tensor);
    }
  }
  if (statistics > 0) {
    all.remarks.push_back(
        fmt::format("left out {} running statistics of norms, which nothing reads", statistics));
  }
  return all;
}

std::vector<std::string> write_pix2pixhd_folder(NewFolder& folder, const TensorMap& tensors) {
  std::vector<std::string> files;
  for (const auto& [name, prefix] : kParts) {
    TensorMap part;
    for (const auto& [whole, tensor] : tensors) {
      if (whole.starts_with(prefix)) part.set(whole.substr(prefix.size()), tensor);
    }
    if (part.empty()) continue;
    write_weights(folder.place_of(name), part);
    files.emplace_back(name);
  }
  return files;
}

}  // namespace tanren
