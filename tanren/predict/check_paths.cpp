#include "tanren/predict/check_paths.h"

#include "tanren/base/error.h"
#include "tanren/data/text/line_reader.h"
#include "tanren/predict/growing_file.h"
#include "tanren/run/kept_files.h"

#include <string>
#include <vector>

namespace tanren {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_out(const fs::path& out, const std::string& what) {
  throw ConfigError("[predict] " + out.string() + " " + what + "; name another file with --out");
}

// Whether the name of the file of predictions can be made from the source's name, beside the
// source.
bool names_file(const fs::path& source) {
  std::error_code none;
  const fs::file_status status = fs::status(source, none);
  // Another process has opened the file behind these names.
  if (source == "-" || source == "/dev/stdin" || source.parent_path() == "/dev/fd") return false;
  return !fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status);
}

void check_out(const fs::path& out, const fs::path& written, const PredictInput& input) {
  std::vector<KeptFile> kept = files_of_model(input.model);
  if (input.source != "-") {
    kept.push_back({input.source, "is what is to be predicted", InFolder::tables});
  }
  if (const std::string what = kept_as(written, kept); !what.empty()) refuse_out(out, what);
}

}  // namespace

void check_paths(const PredictInput& input, const fs::path& out, int64_t ranks) {
  std::error_code none;
  if (input.source != "-" && !fs::exists(input.source, none)) {
    throw InputError("[predict] there is no " + input.source.string() +
                     "; name the file or folder to predict on");
  }
  if (ranks > 1 && is_pipe(input.source)) {
    throw ConfigError("[predict] " +
                      (input.source == "-" ? "standard input" : input.source.string()) +
                      " can be read by one process only; name a file, or predict without launch");
  }
  if (out.empty()) return;
  const fs::file_status status = fs::status(out, none);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    refuse_out(out, fs::is_directory(status) ? "is a folder" : "is no plain file");
  }
  check_out(out, out, input);
  for (const auto& part : GrowingFile::parts_of(out)) check_out(out, part, input);
}

fs::path predictions_file_of(const fs::path& source) {
  if (!names_file(source)) return {};
  std::string name = source.string();
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  fs::path plain = name;
  if (const fs::path last = plain.filename(); last == "." || last == ".." || name == "/") {
    std::error_code none;
    plain = fs::weakly_canonical(fs::absolute(plain, none), none);
  }
  std::error_code none;
  const bool is_folder = fs::is_directory(plain, none);
  const std::string stem = (is_folder ? plain.filename() : plain.stem()).string();
  return plain.parent_path() / (stem + (stem.empty() ? "" : ".") + "predictions.csv");
}

}  // namespace tanren
