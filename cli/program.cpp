#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/config/read_config.h"
#include "tanren/run/run_folder.h"
#include "cli/verbs.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>

namespace tanren::cli {

namespace fs = std::filesystem;

namespace {
constexpr const char* kFooter =
    "Exit codes: 0 done, 1 the run failed, 2 the input was wrong, 130 stopped and resumable.\n"
    "Every key of a config: tanren help [KEY].";

struct Verb {
  const char* name;
  const char* what;
  const char* file;  // what FILE is; null: none
};
constexpr Verb kVerbs[] = {
    {"run", "Train from a config file, or go on in a run folder", "config.toml or run folder"},
    {"plan", "Say what a run would do, and why; start nothing", "config.toml or run folder"},
    {"eval", "Evaluate a run folder's newest checkpoint", "run folder"},
    {"summary", "Show the model module by module: shapes, parameters, multiply-adds, memory",
     "config.toml or run folder"},
    {"convert", "Turn weights into another format, list them, or tokenize a text",
     "safetensors, .pt or text file"},
    {"doctor", "Say what this machine offers to a run", nullptr},
    {"help", "Explain the config's keys", "key or section (all if left out)"},
};

void add_convert_options(CLI::App& command, Arguments& arguments) {
  command.add_option("OUT", arguments.target, "File to write: .safetensors, .pt, .pth, .bin");
  command.add_option("--rename", arguments.renames, "old=new: part of the names (repeatable)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_option("--dtype", arguments.dtype, "Of floating tensors: fp32, fp16, bf16, fp64");
  command.add_option("--tokenizer", arguments.tokenizer,
                     "FILE is text: write its token ids with this tokenizer (file or folder)");
  command.add_flag("--list", arguments.list, "Say what the file holds; write nothing");
  command.add_flag("--quiet", arguments.quiet, "Print errors only");
}
}  // namespace

Named read_named(const Arguments& arguments, const ModelRegistry& models) {
  Named named;
  const fs::path file = arguments.file;
  if (fs::is_directory(file)) {
    named.config = config_of_folder(file, arguments.sets, models.kinds());
    named.folder = arguments.out.empty() ? file : fs::path(arguments.out);
  } else {
    named.config = read_config(file, arguments.sets, models.kinds());
    named.folder =
        arguments.out.empty() ? fs::path("runs") / named.config.run.name : fs::path(arguments.out);
  }
  return named;
}

int main(int argc, char** argv, const ModelRegistry& models) {
  CLI::App app{"tanren " TANREN_VERSION ": trains a model from one file, exactly", "tanren"};
  app.footer(kFooter);
  app.set_version_flag("--version", TANREN_VERSION);
  app.require_subcommand(1);
  Arguments arguments;
  for (const auto& verb : kVerbs) {
    auto* command = app.add_subcommand(verb.name, verb.what);
    command->callback([&arguments, &verb] { arguments.verb = verb.name; });
    const bool is_help = std::string(verb.name) == "help";
    if (verb.file != nullptr) {
      auto* file = command->add_option("FILE", arguments.file, verb.file);
      if (!is_help) file->required();
    }
    if (is_help) continue;
    command->add_flag("--json", arguments.json, "Print JSON instead of text");
    if (verb.file == nullptr) continue;
    if (std::string(verb.name) == "convert") {
      add_convert_options(*command, arguments);
      continue;
    }
    command->add_option("--set", arguments.sets, "key=value: overrides the file (repeatable)")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_option("--out", arguments.out, "Folder of the run (default: runs/<run.name>)");
    command->add_flag("--quiet", arguments.quiet, "Print errors only");
  }
  if (argc > 1 && argv[1][0] != '-') {
    std::vector<std::string> verbs;
    for (const auto& verb : kVerbs) verbs.emplace_back(verb.name);
    if (std::find(verbs.begin(), verbs.end(), argv[1]) == verbs.end()) {
      const std::string best = nearest(argv[1], verbs);
      std::cerr << "[cli] unknown verb \"" << argv[1] << "\"; verbs are " << join(verbs)
                << (best.empty() ? "" : " (nearest: " + best + ")") << "\n";
      return 2;
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error, std::cout, std::cerr);
    return code == 0 ? 0 : 2;
  }
  try {
    if (arguments.verb == "run") return run(arguments, models);
    if (arguments.verb == "plan") return plan(arguments, models);
    if (arguments.verb == "eval") return eval(arguments, models);
    if (arguments.verb == "summary") return summary(arguments, models);
    if (arguments.verb == "convert") return convert(arguments);
    if (arguments.verb == "doctor") return doctor(arguments);
    return help(arguments);
  } catch (const InputError& error) {
    std::cerr << error.what() << "\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

}  // namespace tanren::cli
