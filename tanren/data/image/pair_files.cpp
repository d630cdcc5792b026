#include "tanren/data/image/pair_files.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/data/image/files.h"

#include <filesystem>
#include <map>
#include <utility>

namespace tanren {

namespace {

namespace fs = std::filesystem;

using Names = std::map<std::string, std::string>;  // name without extension → file

// The pictures below root/folder. Their names are relative to that folder.
Names pictures_of(const fs::path& root, const std::string& folder, const SourceOptions& options,
                  const std::string& what) {
  Names names;
  const fs::path start = folder.empty() ? root : root / folder;
  for (const auto& file : images_below(start, root)) {
    const fs::path below = fs::path(file).lexically_relative(folder.empty() ? "." : folder);
    const std::string name = (below.parent_path() / below.stem()).string();
    const auto [at, is_new] = names.emplace(name, file);
    if (is_new) continue;
    throw DataError(
        fmt::format("[{}] {}: {} and {} have the same name; rename or remove one, since "
                    "pictures are paired by name",
                    what, options.path, at->second, file));
  }
  if (names.empty()) {
    throw DataError(
        fmt::format("[{}] {} holds no pictures; JPEG and PNG are read", what, start.string()));
  }
  return names;
}

// The files of `some` that have no partner in `others`.
std::vector<std::string> alone(const Names& some, const Names& others) {
  std::vector<std::string> files;
  for (const auto& [name, file] : some) {
    if (others.count(name) == 0) files.push_back(file);
  }
  return files;
}

std::vector<PicturePair> paired(const Names& inputs, const Names& targets,
                                const SourceOptions& options, const std::string& what) {
  auto single = alone(inputs, targets);
  const auto more = alone(targets, inputs);
  single.insert(single.end(), more.begin(), more.end());
  if (!single.empty()) {
    throw DataError(fmt::format(
        "[{}] {} has {} inputs and {} targets; without a partner of the same name: {}; add the "
        "partners, or remove these",
        what, options.path, inputs.size(), targets.size(), first_few(single)));
  }
  std::vector<PicturePair> pairs;
  for (const auto& [name, file] : inputs) pairs.push_back({name, {file}, {targets.at(name)}});
  return pairs;
}

std::vector<PicturePair> two_folders(const SourceOptions& options, const std::string& what) {
  const fs::path root = options.path;
  std::string input = "inputs", target = "targets";
  for (const auto& folder : {input, target}) {
    std::error_code none;
    if (fs::is_directory(root / folder, none)) continue;
    throw DataError(
        fmt::format("[{}] {} has no folder {}/; put the pictures into inputs/ and their targets, "
                    "of the same names, into targets/, or set {}.side_by_side = true for files "
                    "that hold both",
                    what, options.path, folder, what));
  }
  if (options.swap) std::swap(input, target);
  return paired(pictures_of(root, input, options, what), pictures_of(root, target, options, what),
                options, what);
}

std::vector<PicturePair> one_folder(const SourceOptions& options, const std::string& what) {
  std::vector<PicturePair> pairs;
  for (const auto& [name, file] : pictures_of(options.path, "", options, what)) {
    pairs.push_back({name, {file}, {file}});
  }
  return pairs;
}

std::vector<std::string> files_of(const std::vector<PicturePair>& pairs,
                                  DataFile PicturePair::*side) {
  std::vector<std::string> names;
  for (const auto& pair : pairs) names.push_back((pair.*side).name);
  return names;
}

std::vector<CheckedImage> checked_files(const SourceOptions& options,
                                        const std::vector<std::string>& names) {
  auto checked = check_image_files(options.path, names, options.max_pixels);
  for (auto& file : checked) {
    if (!file.broken.empty()) continue;
    try {
      check_pair_colours(file.header);
    } catch (const BrokenImage& broken) {
      file.broken = broken.what();
    }
  }
  return checked;
}

// Refuses pairs whose pictures do not fit each other, because one view cannot show both.
void refuse_misfits(const std::vector<std::string>& misfits, size_t all,
                    const SourceOptions& options, const std::string& what) {
  if (misfits.empty()) return;
  const std::string advice = options.side_by_side
                                 ? "the left half is one picture, the right half the other, so "
                                   "cut or remove these"
                                 : "resize or remove these";
  throw DataError(fmt::format("[{}] {}: {} of {} pairs do not fit: {}; {}", what, options.path,
                              misfits.size(), all, first_few(misfits), advice));
}

// Drops or refuses pairs with a broken file, and refuses pairs whose two pictures do not fit each
// other. Sets the sizes in bytes of the files.
std::vector<PicturePair> checked_pairs(std::vector<PicturePair> pairs, const SourceOptions& options,
                                       const std::string& what) {
  const auto inputs = checked_files(options, files_of(pairs, &PicturePair::input));
  const auto targets =
      options.side_by_side ? inputs : checked_files(options, files_of(pairs, &PicturePair::target));
  std::vector<std::string> broken, misfits;
  std::vector<PicturePair> usable;
  for (size_t i = 0; i < pairs.size(); ++i) {
    PicturePair& pair = pairs[i];
    if (!inputs[i].broken.empty() || !targets[i].broken.empty()) {
      const bool is_input = !inputs[i].broken.empty();
      broken.push_back((is_input ? pair.input.name : pair.target.name) + " " +
                       (is_input ? inputs[i].broken : targets[i].broken));
      continue;
    }
    try {
      if (options.side_by_side) {
        check_halves(inputs[i].header);
      } else {
        check_same_size(inputs[i].header, targets[i].header);
      }
    } catch (const BrokenImage& misfit) {
      misfits.push_back((options.side_by_side ? pair.input.name : pair.target.name) + " " +
                        misfit.what());
    }
    pair.input.bytes = inputs[i].bytes;
    pair.target.bytes = targets[i].bytes;
    usable.push_back(std::move(pair));
  }
  refuse_or_skip(broken, pairs.size(), options.side_by_side ? "files" : "pairs", options, what);
  refuse_misfits(misfits, pairs.size(), options, what);
  if (usable.empty()) {
    throw DataError(
        fmt::format("[{}] {} has no pair that can be used; put whole JPEG or PNG files there", what,
                    options.path));
  }
  return usable;
}

std::string pixels_text(const ImageHeader& header) {
  return fmt::format("{} × {}", to_text(header.shown_width()), to_text(header.shown_height()));
}

}  // namespace

std::vector<PicturePair> list_pairs(const SourceOptions& options, const std::string& what) {
  std::error_code none;
  if (!fs::is_directory(options.path, none)) {
    throw DataError(fmt::format("[{}] {} is no folder; name the one that holds {}", what,
                                options.path,
                                options.side_by_side ? "the pictures" : "inputs/ and targets/"));
  }
  try {
    auto pairs = options.side_by_side ? one_folder(options, what) : two_folders(options, what);
    return checked_pairs(std::move(pairs), options, what);
  } catch (const fs::filesystem_error& error) {
    throw DataError(fmt::format("[{}] {} cannot be listed: {}; check its permissions", what,
                                options.path, error.code().message()));
  }
}

void check_pair_colours(const ImageHeader& header) {
  if (header.components < 4) return;
  throw BrokenImage("is a CMYK JPEG, whose colours depend on its inks: convert it to RGB");
}

void check_same_size(const ImageHeader& input, const ImageHeader& target) {
  if (input.shown_width() == target.shown_width() &&
      input.shown_height() == target.shown_height()) {
    return;
  }
  throw BrokenImage(fmt::format("is {}, its input {}", pixels_text(target), pixels_text(input)));
}

void check_halves(const ImageHeader& header) {
  if (header.shown_width() % 2 == 0) return;
  throw BrokenImage(fmt::format("is {}, and an odd width has no halves", pixels_text(header)));
}

}  // namespace tanren
