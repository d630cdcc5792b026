#include "tanren/checkpoint/step_folders.h"

#include "tanren/base/file.h"
#include "tanren/base/temporary.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/manifest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kAside = ".tmp-step-";
constexpr std::string_view kBefore = "-before";
constexpr std::string_view kLinkAside = ".tmp-best-";

// The number <n> if `name` is `start`<n>`end`; otherwise -1.
int64_t number_in(std::string_view name, std::string_view start, std::string_view end) {
  if (!name.starts_with(start) || !name.ends_with(end)) return -1;
  if (name.size() <= start.size() + end.size()) return -1;
  const char* last = name.data() + name.size() - end.size();
  int64_t number = -1;
  const auto result = std::from_chars(name.data() + start.size(), last, number);
  return result.ec == std::errc() && result.ptr == last ? number : -1;
}

fs::path step_folder(const fs::path& folder, int64_t step) {
  return folder / (std::string(kStep) + to_text(step));
}

fs::path before_of(const fs::path& folder, int64_t step) {
  return folder / (std::string(kAside) + to_text(step) + std::string(kBefore));
}

bool is_before(const fs::path& path) {
  return number_in(path.filename().string(), kAside, kBefore) >= 0;
}

// Removes a save. It is renamed first: a half-removed folder must not look like a save.
void discard(const fs::path& save) {
  std::error_code error;
  const fs::path doomed = temporary_name(step_folder(save.parent_path(), step_of(save)));
  fs::rename(save, doomed, error);
  if (!error) fs::remove_all(doomed, error);
}

// Whether `name` is one of our temporary names and not that of a save. The last two conditions
// match names that older versions wrote.
bool is_unfinished(std::string_view name) {
  const bool is_ours = name.starts_with(kAside) || name.starts_with(kLinkAside);
  return (is_ours && is_temporary_name(name)) || number_in(name, kAside, "") >= 0 ||
         name == kLinkAside.substr(0, kLinkAside.size() - 1);
}

}  // namespace

int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return std::max(number_in(name, kStep, ""), number_in(name, kAside, kBefore));
}

bool is_step_folder(const fs::path& folder) {
  std::error_code none;
  if (fs::exists(folder / "manifest.json", none) || is_complete(folder)) return true;
  fs::path place = fs::absolute(folder, none).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  return step_of(place) >= 0 && place.parent_path().filename() == "checkpoints" &&
         !fs::exists(place / "checkpoints", none);
}

fs::path complete_step(const fs::path& folder, int64_t step) {
  for (const auto& path : {step_folder(folder, step), before_of(folder, step)}) {
    if (is_complete(path)) return path;
  }
  return {};
}

std::vector<fs::path> complete_steps(const fs::path& folder) {
  std::map<int64_t, fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const int64_t step = step_of(entry.path());
    if (step < 0) continue;
    const fs::path whole = complete_step(folder, step);
    if (!whole.empty()) found[step] = whole;
  }
  std::vector<fs::path> sorted;
  sorted.reserve(found.size());
  for (const auto& [step, path] : found) sorted.push_back(path);
  return sorted;
}

fs::path make_step_folder(const fs::path& target) {
  fs::path made = make_temporary(target, [](const char* name) { return ::mkdir(name, 0777); });
  if (!made.empty()) return made;
  throw fs::filesystem_error("cannot make", target,
                             std::error_code(errno, std::generic_category()));
}

void put_in_place(const fs::path& made, const fs::path& target) {
  const fs::path folder = target.parent_path();
  std::error_code ignored;
  // Two saves of a step are exchanged in one system call, so that one of them always exists.
  if (::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    sync_folder(folder);
    fs::remove_all(made, ignored);
    return;
  }
  // There is no save at `target`, or the file system cannot exchange names. So an older save, if
  // any, is first renamed to a name that counts.
  const fs::path before = before_of(folder, step_of(target));
  if (is_complete(target)) {
    discard(before);
    fs::rename(target, before);
  } else {
    discard(target);
  }
  fs::rename(made, target);
  sync_folder(folder);
  discard(before);
}

void remove_old(const fs::path& folder, int64_t keep, const fs::path& newest,
                const std::vector<int64_t>& best) {
  const auto all = complete_steps(folder);
  const auto surplus = static_cast<int64_t>(all.size()) - std::max<int64_t>(keep, 1);
  for (int64_t i = 0; i < surplus; ++i) {
    const bool is_best = std::find(best.begin(), best.end(), step_of(all[i])) != best.end();
    if (all[i] != newest && !is_best) discard(all[i]);
  }
}

void link_best(const fs::path& link, const std::vector<int64_t>& best) {
  std::error_code error;
  for (const auto step : best) {
    const fs::path target = complete_step(link.parent_path(), step);
    if (target.empty()) continue;
    const std::string name = target.filename().string();
    const fs::path made = make_temporary(
        link, [&](const char* temporary) { return ::symlink(name.c_str(), temporary); });
    if (made.empty()) return;
    fs::rename(made, link, error);
    if (error) fs::remove(made, error);
    return;
  }
  if (fs::is_symlink(link, error)) fs::remove(link, error);
}

void remove_unfinished(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (is_unfinished(entry.path().filename().string())) stale.push_back(entry.path());
    if (!is_before(entry.path())) continue;
    const bool is_last = complete_step(folder, step_of(entry.path())) == entry.path();
    if (!is_last) stale.push_back(entry.path());
  }
  for (const auto& path : stale) {
    if (is_before(path)) {
      discard(path);
    } else {
      fs::remove_all(path, ignored);
    }
  }
}

}  // namespace tanren
