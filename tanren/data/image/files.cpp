#include "tanren/data/image/files.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <thread>

namespace tanren {

namespace fs = std::filesystem;

namespace {

// Common extensions of images. Only JPEG and PNG are read, whatever the extension says; a file of
// another format is reported as broken, not skipped in silence.
constexpr std::array<std::string_view, 14> kExtensions = {".jpg", ".jpeg", ".jpe",  ".jfif", ".png",
                                                          ".bmp", ".gif",  ".tif",  ".tiff", ".ppm",
                                                          ".pgm", ".webp", ".heic", ".avif"};

}  // namespace

bool has_image_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

bool is_hidden(const fs::path& path) { return path.filename().string().rfind('.', 0) == 0; }

namespace {

// Whether a link leads to a folder that it lies in, so that following it would never end.
bool leads_up(const fs::directory_entry& entry) {
  std::error_code none;
  if (!entry.is_symlink(none)) return false;
  const fs::path target = fs::canonical(entry.path(), none);
  const fs::path place = fs::canonical(entry.path().parent_path(), none);
  return std::mismatch(target.begin(), target.end(), place.begin(), place.end()).first ==
         target.end();
}

}  // namespace

std::vector<std::string> images_below(const fs::path& folder, const fs::path& root) {
  std::vector<std::string> names;
  constexpr auto kFollow = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator entry(folder, kFollow), end; entry != end; ++entry) {
    std::error_code none;
    const bool folder_entry = entry->is_directory(none);
    if (is_hidden(entry->path()) || (folder_entry && leads_up(*entry))) {
      if (folder_entry) entry.disable_recursion_pending();
    } else if (!folder_entry && has_image_extension(entry->path())) {
      names.push_back(entry->path().lexically_relative(root).string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<CheckedImage> check_image_files(const fs::path& root,
                                            const std::vector<std::string>& names,
                                            int64_t max_pixels) {
  std::vector<CheckedImage> checked(names.size());
  std::atomic<size_t> next = 0;
  const auto check_some = [&] {
    FileBuffer buffer;
    for (size_t i = next++; i < names.size(); i = next++) {
      try {
        checked[i].header = buffer.check((root / names[i]).string(), max_pixels);
        checked[i].bytes = buffer.checked_bytes();
      } catch (const BrokenImage& broken) {
        checked[i].broken = broken.what();
      }
    }
  };
  // The threads mostly wait for the disk. A small folder needs no helper thread at all.
  constexpr size_t kFilesPerThread = 500, kMostThreads = 8;
  const size_t helpers = std::min(names.size() / kFilesPerThread, kMostThreads);
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < helpers; ++i) threads.emplace_back(check_some);
  check_some();
  threads.clear();  // waits for them
  return checked;
}

void refuse_or_skip(const std::vector<std::string>& broken, size_t all, const std::string& of,
                    const SourceOptions& options, const std::string& what) {
  if (broken.empty()) return;
  const std::string count = fmt::format("{} of {} {}", broken.size(), all, of);
  if (options.broken != "skip") {
    throw DataError(fmt::format(
        "[{}] {}: {} cannot be used: {}; fix or remove them, or set {}.broken = \"skip\"", what,
        options.path, count, first_few(broken), what));
  }
  log(fmt::format("[{}] skipped {} in {}: {}", what, count, options.path, first_few(broken)));
}

std::string first_few(const std::vector<std::string>& items) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(items.size(), kShown); ++i) {
    text += (i > 0 ? ", " : "") + items[i];
  }
  if (items.size() <= kShown) return text;
  return fmt::format("{} and {} more", text, items.size() - kShown);
}

}  // namespace tanren
