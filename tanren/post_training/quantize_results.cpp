#include "tanren/post_training/quantize_results.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/interop/export.h"

#include <c10/util/ScopeExit.h>

#include <unistd.h>

#include <string>
#include <system_error>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr const char* kReports[] = {"quantize.txt", "quantize.json", "quantize.html"};
constexpr const char* kAside = ".quantize.new";  // a folder in that of the results

void make_result_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return;
  throw ConfigError("[quantize] cannot make the folder " + folder.string() + ": " +
                    error.message() + "; name another one with --out");
}

void check_replaced(const fs::path& file, const std::error_code& error) {
  if (!error) return;
  throw RunError("[quantize] cannot replace " + file.string() + ": " + error.message() +
                 "; move it away, or name another folder with --out");
}

void remove_result(const fs::path& file) {
  std::error_code error;
  fs::remove(file, error);
  check_replaced(file, error);
}

}  // namespace

fs::path result_folder(const QuantizeInput& input, const fs::path& file) {
  fs::path out = input.out.empty() ? file.parent_path() / "quantized" : input.out;
  std::error_code none;
  if (fs::exists(out / "config.toml", none) || fs::exists(out / "checkpoints", none) ||
      fs::equivalent(out / kWholeFile, file, none)) {
    throw ConfigError("[quantize] " + out.string() +
                      " has the model itself, or is the folder of a run; name another one with "
                      "--out");
  }
  const auto check_absent = [&](const char* name) {
    if (input.replaces || !fs::exists(out / name, none)) return;
    throw ConfigError("[quantize] " + (out / name).string() +
                      " is there; replace it with --force, or name another folder with --out");
  };
  check_absent(kWholeFile);
  for (const char* name : kReports) check_absent(name);
  fs::path above = fs::absolute(out);
  while (!fs::exists(above, none) && above.has_relative_path()) above = above.parent_path();
  if (!fs::is_directory(above, none) || ::access(above.c_str(), W_OK) != 0) {
    throw ConfigError("[quantize] cannot write into " + out.string() + ", since " + above.string() +
                      " is no folder that this user may write to; name another one with --out");
  }
  return out;
}

void write_results(const fs::path& out, const QuantizeReport& report,
                   const std::function<void(const fs::path&)>& write_model) {
  const fs::path aside = out / kAside;
  std::error_code none;
  fs::remove_all(aside, none);  // of a process that was killed
  make_result_folder(aside);
  const auto clean = c10::make_scope_exit([&] { fs::remove_all(aside, none); });
  if (write_model) write_model(aside / kWholeFile);
  write_file(aside / "quantize.txt", quantize_text_report(report));
  write_file(aside / "quantize.json", quantize_json_report(report) + "\n");
  write_file(aside / "quantize.html", quantize_html_report(report));

  const auto take_place = [&](const char* name) {
    std::error_code error;
    fs::rename(aside / name, out / name, error);
    check_replaced(out / name, error);
  };
  for (const char* name : kReports) remove_result(out / name);
  sync_folder(out);
  if (write_model) {
    take_place(kWholeFile);
  } else {
    remove_result(out / kWholeFile);
  }
  sync_folder(out);
  for (const char* name : kReports) take_place(name);
  sync_folder(out);
}

}  // namespace tanren
