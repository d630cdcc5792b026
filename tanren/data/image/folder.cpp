#include "tanren/data/image/folder.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/data/image/header.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <string_view>
#include <thread>

namespace tanren {

namespace {

namespace fs = std::filesystem;

// Common extensions of images. Only JPEG and PNG are read, whatever the extension says; a file of
// another format is reported as broken, not skipped in silence.
constexpr std::array<std::string_view, 14> kExtensions = {".jpg", ".jpeg", ".jpe",  ".jfif", ".png",
                                                          ".bmp", ".gif",  ".tif",  ".tiff", ".ppm",
                                                          ".pgm", ".webp", ".heic", ".avif"};

bool has_image_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

bool is_hidden(const fs::path& path) { return path.filename().string().rfind('.', 0) == 0; }

// Image files below `folder`, as paths relative to `root`, sorted.
std::vector<std::string> images_below(const fs::path& folder, const fs::path& root) {
  std::vector<std::string> names;
  constexpr auto kFollow = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator entry(folder, kFollow), end; entry != end; ++entry) {
    std::error_code none;
    const bool folder_entry = entry->is_directory(none);
    if (is_hidden(entry->path())) {
      if (folder_entry) entry.disable_recursion_pending();
    } else if (!folder_entry && has_image_extension(entry->path())) {
      names.push_back(entry->path().lexically_relative(root).string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

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

// Returns why each file is broken; empty if it is fine, and then its size is filled in.
std::vector<std::string> reasons(const fs::path& root, std::vector<ImageFolder::File>& files,
                                 int64_t max_pixels) {
  std::vector<std::string> found(files.size());
  std::atomic<size_t> next = 0;
  const auto check_some = [&] {
    FileBuffer buffer;
    for (size_t i = next++; i < files.size(); i = next++) {
      try {
        buffer.check((root / files[i].name).string(), max_pixels);
        files[i].bytes = buffer.checked_bytes();
      } catch (const BrokenImage& broken) {
        found[i] = broken.what();
      }
    }
  };
  // The work is waiting for a disk more than computing; a few small folders need no threads at all.
  constexpr size_t kFilesPerThread = 500, kMostThreads = 8;
  const size_t helpers = std::min(files.size() / kFilesPerThread, kMostThreads);
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < helpers; ++i) threads.emplace_back(check_some);
  check_some();
  return found;
}

// Removes broken files from the list; DataError or a line in the log, as configured.
void drop_broken(ImageFolder& folder, const SourceOptions& options, const std::string& what) {
  const auto why = reasons(options.path, folder.files, options.max_pixels);
  std::vector<std::string> broken;
  std::vector<ImageFolder::File> usable;
  for (size_t i = 0; i < why.size(); ++i) {
    if (why[i].empty()) {
      usable.push_back(std::move(folder.files[i]));
    } else {
      broken.push_back(folder.files[i].name + " " + why[i]);
    }
  }
  if (broken.empty()) {
    folder.files = std::move(usable);
    return;
  }
  const std::string count = fmt::format("{} of {} files", broken.size(), why.size());
  if (options.broken != "skip") {
    throw DataError(fmt::format(
        "[{}] {}: {} cannot be used: {}; fix or remove them, or set {}.broken = \"skip\"", what,
        options.path, count, first_few(broken), what));
  }
  log(fmt::format("[{}] skipped {} in {}: {}", what, count, options.path, first_few(broken)));
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

std::string first_few(const std::vector<std::string>& items) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(items.size(), kShown); ++i) {
    text += (i > 0 ? ", " : "") + items[i];
  }
  if (items.size() <= kShown) return text;
  return fmt::format("{} and {} more", text, items.size() - kShown);
}

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
