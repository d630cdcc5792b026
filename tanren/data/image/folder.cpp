#include "tanren/data/image/folder.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/data/image/files.h"

#include <algorithm>
#include <filesystem>

namespace tanren {

namespace {

namespace fs = std::filesystem;

// The class folders of `root`, sorted; DataError if it has none.
std::vector<std::string> classes_of(const fs::path& root, const std::string& what) {
  std::vector<std::string> classes;
  int64_t loose = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (is_hidden(entry.path())) continue;
    if (entry.is_directory()) classes.push_back(entry.path().filename().string());
    if (!entry.is_directory() && has_image_extension(entry.path())) ++loose;
  }
  std::sort(classes.begin(), classes.end());
  if (classes.empty()) {
    throw DataError(fmt::format(
        "[{}] {} holds {} but no class folders; put the images of each class into a folder that "
        "has its name",
        what, root.string(), loose > 0 ? fmt::format("{} images", to_text(loose)) : "nothing"));
  }
  return classes;
}

// The classes that data.*.only_classes names, in its order; all classes if it is empty.
std::vector<std::string> chosen(std::vector<std::string> classes, const SourceOptions& options,
                                const std::string& what) {
  if (options.only_classes.empty()) return classes;
  for (const auto& name : options.only_classes) {
    if (std::find(classes.begin(), classes.end(), name) != classes.end()) continue;
    throw DataError(
        fmt::format("[{}] {} has no class folder \"{}\" ({}.only_classes); there are {}", what,
                    options.path, name, what, first_few(classes)));
  }
  return options.only_classes;
}

// Removes broken files from the list; DataError or a line in the log, as configured.
void drop_broken(ImageFolder& folder, const SourceOptions& options, const std::string& what) {
  std::vector<std::string> names, broken;
  for (const auto& file : folder.files) names.push_back(file.name);
  const auto checked = check_image_files(options.path, names, options.max_pixels);
  std::vector<ImageFolder::File> usable;
  for (size_t i = 0; i < checked.size(); ++i) {
    if (checked[i].broken.empty()) {
      folder.files[i].bytes = checked[i].bytes;
      usable.push_back(std::move(folder.files[i]));
    } else {
      broken.push_back(folder.files[i].name + " " + checked[i].broken);
    }
  }
  refuse_or_skip(broken, names.size(), "files", options, what);
  folder.files = std::move(usable);
}

// The label of each class folder. Folders of an evaluation set get the training labels, by name.
std::vector<int64_t> labels_of(const std::vector<std::string>& classes, const DataInfo* train,
                               const SourceOptions& options, const std::string& what) {
  std::vector<int64_t> labels;
  std::vector<std::string> unknown;
  for (size_t i = 0; i < classes.size(); ++i) {
    if (train == nullptr || train->class_names.empty()) {
      labels.push_back(static_cast<int64_t>(i));
      continue;
    }
    const auto& known = train->class_names;
    const auto at = std::find(known.begin(), known.end(), classes[i]);
    if (at == known.end()) unknown.push_back(classes[i]);
    labels.push_back(at - known.begin());
  }
  if (!unknown.empty()) {
    throw DataError(
        fmt::format("[{}] {} has classes that the training data lacks: {}; training knows {}; "
                    "rename or remove these folders",
                    what, options.path, first_few(unknown), first_few(train->class_names)));
  }
  return labels;
}

}  // namespace

ImageFolder open_image_folder(const SourceOptions& options, const std::string& what,
                              const DataInfo* train) {
  const fs::path root = options.path;
  std::error_code none;
  if (!fs::is_directory(root, none)) {
    throw DataError("[" + what + "] " + options.path +
                    " is no folder; name the one that holds a folder of images for each class");
  }
  ImageFolder folder;
  try {
    folder.classes = chosen(classes_of(root, what), options, what);
    const auto labels = labels_of(folder.classes, train, options, what);
    for (size_t i = 0; i < labels.size(); ++i) {
      for (auto& name : images_below(root / folder.classes[i], root)) {
        folder.files.push_back({std::move(name), labels[i]});
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(fmt::format("[{}] {} cannot be listed: {}; check its permissions", what,
                                options.path, error.code().message()));
  }
  if (folder.files.empty()) {
    throw DataError(
        fmt::format("[{}] {} has {} class folders but no image in them; JPEG and PNG are read",
                    what, options.path, folder.classes.size()));
  }
  drop_broken(folder, options, what);
  if (train != nullptr && !train->class_names.empty()) {
    folder.classes = train->class_names;
    return folder;
  }
  if (folder.classes.size() < 2) {
    throw DataError(
        fmt::format("[{}] {} has one class only ({}); a classifier needs two or more class folders",
                    what, options.path, folder.classes.front()));
  }
  std::vector<bool> seen(folder.classes.size());
  for (const auto& file : folder.files) seen[static_cast<size_t>(file.label)] = true;
  std::vector<std::string> empty;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i]) empty.push_back(folder.classes[i]);
  }
  if (!empty.empty()) {
    throw DataError(
        fmt::format("[{}] {}: no usable image in the class folders {}; fill or remove them", what,
                    options.path, first_few(empty)));
  }
  return folder;
}

}  // namespace tanren
