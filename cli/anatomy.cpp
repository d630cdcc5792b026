#include "tanren/anatomy/anatomy.h"
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "cli/verbs.h"

#include <filesystem>
#include <iostream>

namespace tanren::cli {

namespace {

namespace fs = std::filesystem;

// The report's folder; refuses a run's folder, so that its files are not touched.
fs::path report_folder(const Arguments& arguments, const RunConfig& config) {
  fs::path folder =
      arguments.out.empty() ? fs::path("anatomy") / config.run.name : fs::path(arguments.out);
  if (fs::exists(folder / "config.toml") || fs::exists(folder / "checkpoints")) {
    throw ConfigError("[anatomy] " + folder.string() +
                      " is the folder of a run; name another one with --out");
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw ConfigError("[anatomy] cannot make the folder " + folder.string() + ": " +
                      error.message() + "; name another one with --out");
  }
  return folder;
}

}  // namespace

int anatomy(const Arguments& arguments, const Registry& registry) {
  const Named named = read_named(arguments, registry);
  const fs::path folder = report_folder(arguments, named.config);
  const Anatomy found = dissect(named.config, registry, /*advises=*/!arguments.no_advice);
  const std::string text = anatomy_text(found), json = anatomy_json(found) + "\n";
  write_file(folder / "anatomy.txt", text);
  write_file(folder / "anatomy.json", json);
  write_file(folder / "report.html", anatomy_html(found));
  if (arguments.json) {
    std::cout << json;
  } else if (!arguments.quiet) {
    std::cout << text << "\nreport: " << (folder / "report.html").string()
              << " (beside it: anatomy.txt, anatomy.json)\n";
  }
  return 0;
}

}  // namespace tanren::cli
