#include "tanren/interop/hub.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace tanren {

namespace fs = std::filesystem;

namespace {

struct Repository {
  std::string_view name, full;
};
// Names that were once published without an owner, and Google's smaller models.
constexpr Repository kRepositories[] = {
    {"bert-base-uncased", "google-bert/bert-base-uncased"},
    {"bert-base-cased", "google-bert/bert-base-cased"},
    {"bert-base-multilingual-cased", "google-bert/bert-base-multilingual-cased"},
    {"bert-base-chinese", "google-bert/bert-base-chinese"},
    {"bert-large-uncased", "google-bert/bert-large-uncased"},
    {"bert-large-cased", "google-bert/bert-large-cased"},
    {"bert-tiny", "google/bert_uncased_L-2_H-128_A-2"},
    {"bert-mini", "google/bert_uncased_L-4_H-256_A-4"},
    {"bert-small", "google/bert_uncased_L-4_H-512_A-8"},
    {"bert-medium", "google/bert_uncased_L-8_H-512_A-8"},
    {"gpt2", "openai-community/gpt2"},
    {"gpt2-medium", "openai-community/gpt2-medium"},
    {"gpt2-large", "openai-community/gpt2-large"},
    {"gpt2-xl", "openai-community/gpt2-xl"},
    {"distilgpt2", "distilbert/distilgpt2"}};

struct TorchFile {
  std::string_view name, file;
};
// torchvision's weights; for each name the better ones first.
constexpr TorchFile kTorchFiles[] = {
    {"resnet18", "resnet18-f37072fd.pth"},   {"resnet34", "resnet34-b627a593.pth"},
    {"resnet50", "resnet50-11ad3fa6.pth"},   {"resnet50", "resnet50-0676ba61.pth"},
    {"resnet101", "resnet101-cd907fc2.pth"}, {"resnet101", "resnet101-63fe2227.pth"},
    {"resnet152", "resnet152-f82ba261.pth"}, {"resnet152", "resnet152-394f9c45.pth"},
    {"vgg11", "vgg11-8a719046.pth"},         {"vgg13", "vgg13-19584684.pth"},
    {"vgg16", "vgg16-397923af.pth"},         {"vgg19", "vgg19-dcbb9e9d.pth"},
    {"vgg11_bn", "vgg11_bn-6002323d.pth"},   {"vgg13_bn", "vgg13_bn-abd245e5.pth"},
    {"vgg16_bn", "vgg16_bn-6c64b313.pth"},   {"vgg19_bn", "vgg19_bn-c79401a0.pth"}};

constexpr std::array kWeights = {"model.safetensors", "model.safetensors.index.json",
                                 "pytorch_model.bin", "pytorch_model.bin.index.json"};

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

fs::path environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

[[noreturn]] void refuse(const std::string& from, const std::string& what) {
  throw ConfigError("[model] from_hf \"" + from + "\" " + what);
}

HubModel in_folder(const std::string& from, const fs::path& folder) {
  if (!is_there(folder / "config.json")) {
    refuse(from, "has no config.json; name the folder that save_pretrained wrote");
  }
  for (const char* name : kWeights) {
    if (is_there(folder / name)) return {"", folder, folder / name};
  }
  refuse(from, "has no weights; it needs model.safetensors or pytorch_model.bin, or their index");
}

// The snapshot that refs/main names, else the first that has a config.json.
std::optional<fs::path> snapshot(const fs::path& cache, const std::string& repository) {
  std::string name = "models--" + repository;
  for (size_t slash; (slash = name.find('/')) != std::string::npos;) name.replace(slash, 1, "--");
  const fs::path snapshots = cache / name / "snapshots";
  if (is_there(cache / name / "refs" / "main")) {
    std::string commit = read_file(cache / name / "refs" / "main");
    commit.erase(std::remove_if(commit.begin(), commit.end(), [](char c) { return c <= ' '; }),
                 commit.end());
    const bool plain = !commit.empty() && commit.find('/') == std::string::npos && commit != "..";
    if (plain && is_there(snapshots / commit / "config.json")) return snapshots / commit;
  }
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(snapshots, none)) {
    if (is_there(entry.path() / "config.json")) found.push_back(entry.path());
  }
  if (found.empty()) return std::nullopt;
  return *std::min_element(found.begin(), found.end());
}

std::optional<HubModel> torch_model(const std::string& from, const fs::path& cache) {
  const TorchFile* best = nullptr;
  for (const auto& item : kTorchFiles) {
    if (item.name != from) continue;
    if (best == nullptr) best = &item;
    if (is_there(cache / item.file)) {
      return HubModel{from.substr(0, from.find_first_of("0123456789")), "", cache / item.file};
    }
  }
  if (best == nullptr) return std::nullopt;
  const std::string target = (cache / best->file).string();
  refuse(from, fmt::format("is not in {}; download it: curl -fL --create-dirs -o '{}' "
                           "https://download.pytorch.org/models/{}",
                           cache.string(), target, best->file));
}

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const auto& item : kRepositories) names.emplace_back(item.name);
  for (const auto& item : kTorchFiles) names.emplace_back(item.name);
  return names;
}

}  // namespace

HubCaches hub_caches() {
  const auto first = [](std::initializer_list<fs::path> paths) {
    for (const auto& path : paths) {
      if (!path.empty()) return path;
    }
    return fs::path();
  };
  const auto below = [](const fs::path& base, const char* rest) {
    return base.empty() ? fs::path() : base / rest;
  };
  const fs::path cache =
      first({environment("XDG_CACHE_HOME"), below(environment("HOME"), ".cache"), ".cache"});
  return {first({environment("HF_HUB_CACHE"), environment("HUGGINGFACE_HUB_CACHE"),
                 below(environment("HF_HOME"), "hub"), cache / "huggingface" / "hub"}),
          first({environment("TORCH_HOME"), cache / "torch"}) / "hub" / "checkpoints"};
}

HubModel find_hub_model(const std::string& from, const HubCaches& caches) {
  std::error_code none;
  if (fs::is_directory(from, none)) return in_folder(from, from);
  if (from.front() == '/' || from.front() == '.') {
    refuse(from, "is no folder; name one, or a model in a cache");
  }
  if (auto model = torch_model(from, caches.torch)) return *model;
  std::string repository = from;
  for (const auto& item : kRepositories) {
    if (item.name == from) repository = item.full;
  }
  for (const auto& name : {repository, from}) {
    if (const auto folder = snapshot(caches.hugging_face, name)) return in_folder(from, *folder);
  }
  if (std::count(repository.begin(), repository.end(), '/') != 1) {
    const std::string near = nearest(from, known_names());
    refuse(from, "is no folder and no known model" +
                     (near.empty() ? "; there are " + join(known_names())
                                   : " (nearest: " + near + "); name one, or owner/name"));
  }
  refuse(from, "is not in " + caches.hugging_face.string() + "; download it: hf download " +
                   repository + " config.json model.safetensors");
}

}  // namespace tanren
