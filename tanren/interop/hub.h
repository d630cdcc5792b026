// Finds models that Hugging Face and torch.hub have downloaded, by name or folder. Reads folders
// and the environment; downloads nothing. Called by pretrained.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

struct HubModel {
  std::string kind;               // resnet, vgg; empty: config.json gives it
  std::filesystem::path folder;   // with config.json; empty for a weights file alone
  std::filesystem::path weights;  // file, or index of files
};

// The caches to search. Located as the Python packages do: HF_HUB_CACHE, HF_HOME, TORCH_HOME,
// XDG_CACHE_HOME, and their defaults below the home folder.
struct HubCaches {
  std::filesystem::path hugging_face, torch;
};
HubCaches hub_caches();

// Resolves `from`: a folder with config.json and weights, or the name of a model
// ("bert-base-uncased", "google-bert/bert-base-uncased", "resnet50") in one of the caches.
// ConfigError naming what the folder lacks, the command that downloads the model, or the nearest
// known name.
HubModel find_hub_model(const std::string& from, const HubCaches& caches = hub_caches());

}  // namespace tanren
