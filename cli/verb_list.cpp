#include "cli/verb_list.h"

#include "tanren/base/names.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace tanren::cli {

namespace {

struct Verb {
  const char* name;
  const char* what;
  const char* file;  // what FILE is; null: none
  bool on_ranks = false;
};
constexpr Verb kVerbs[] = {
    {"run", "Train from a config file, or go on in a run folder", "config.toml or run folder",
     /*on_ranks=*/true},
    {"plan", "Say what a run would do, and why; start nothing", "config.toml or run folder"},
    {"eval", "Evaluate a run folder's newest checkpoint, or a whole model on DATA",
     "run folder, or model.tanren.safetensors", /*on_ranks=*/true},
    {"launch", "Start a verb, or a program of your own, as several ranks that work together",
     nullptr},
    {"summary", "Show the model module by module: shapes, parameters, multiply-adds, memory",
     "config.toml or run folder"},
    {"anatomy", "Run a few steps and report where time and memory go: operations, blocks, stages",
     "config.toml or run folder"},
    {"convert",
     "Turn weights into another format or a folder for Python, list them, or tokenize a text",
     "safetensors, .pt or text file, run folder"},
    {"doctor", "Say what this machine offers to a run", nullptr},
    {"monitor", "Watch this machine: devices, memory, processors and the runs on it", nullptr},
    {"help", "Explain the config's keys", "key or section (all if left out)"},
    {"completion", "Print a script that completes verbs, keys and values in a shell",
     "bash, zsh or fish"},
};

constexpr const char* kStopping =
    "Ctrl-C, SIGTERM and SIGHUP save and stop: exit code 130, and the same command goes on. A "
    "second "
    "Ctrl-C ends at once, unsaved.";

void add_convert_options(CLI::App& command, Arguments& arguments) {
  command.add_option("OUT", arguments.target,
                     "File to write: .safetensors, .pt, .pth, .bin; or a folder, of a "
                     "finished run or whole model: what Python opens");
  command.add_option("--rename", arguments.renames, "old=new: part of the names (repeatable)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_option("--dtype", arguments.dtype, "Of floating tensors: fp32, fp16, bf16, fp64");
  command.add_option("--tokenizer", arguments.tokenizer,
                     "FILE is text: write its token ids with this tokenizer (file or folder)");
  command.add_flag("--optimizer", arguments.optimizer,
                   "FILE is a run or checkpoint: write {model, optimizer, step, epoch} for torch");
  command.add_flag("--list", arguments.list, "Say what the file holds; write nothing");
  command.add_flag("--quiet", arguments.quiet, "Print errors only");
}

void add_monitor_options(CLI::App& command, Arguments& arguments) {
  command.add_flag("--once", arguments.once, "Look once and end");
  command.add_option("--interval", arguments.interval,
                     "Seconds between looks, 0.1 to 3600 (default 1; with --once, over which "
                     "shares are taken: 0.2)");
}

void add_launch_options(CLI::App& command, Arguments& arguments) {
  LaunchArguments& launch = arguments.launch;
  command.add_option("-n,--ranks", launch.ranks, "Ranks of this machine");
  command.add_option("--nodes", launch.nodes, "Machines; launch runs once on each (default 1)");
  command.add_option("--node-rank", launch.node_rank, "Which of the machines this is, from 0");
  command.add_option("--master", launch.master,
                     "HOST:PORT where the ranks meet: an address of machine 0, and a port there");
  command.footer("tanren launch -n 4 run FILE …     verbs: " + join(verbs_on_ranks()) +
                 "\ntanren launch -n 4 -- PROGRAM …   a program that reads RANK and WORLD_SIZE\n" +
                 kStopping);
  // The verb and all behind it are read by the verb itself.
  command.prefix_command();
  command.callback([&command, &arguments] {
    arguments.verb = "launch";
    arguments.launch.verb = command.remaining();
  });
}

// Those that read a config or a model, and so may meet torch's errors.
bool takes_verbose(const Verb& verb) {
  const std::string_view name = verb.name;
  return verb.file != nullptr && name != "help" && name != "completion";
}

}  // namespace

bool takes_verbose(const std::string& verb) {
  return std::any_of(std::begin(kVerbs), std::end(kVerbs),
                     [&](const Verb& known) { return known.name == verb && takes_verbose(known); });
}

std::vector<std::string> verbs_on_ranks() {
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) {
    if (verb.on_ranks) names.emplace_back(verb.name);
  }
  return names;
}

void add_verbs(CLI::App& app, Arguments& arguments) {
  for (const auto& verb : kVerbs) {
    auto* command = app.add_subcommand(verb.name, verb.what);
    command->callback([&arguments, name = verb.name] { arguments.verb = name; });
    const bool is_help = std::string(verb.name) == "help";
    if (verb.file != nullptr) {
      auto* file = command->add_option("FILE", arguments.file, verb.file);
      if (!is_help) file->required();
    }
    if (is_help || std::string(verb.name) == "completion") continue;
    if (std::string(verb.name) == "launch") {
      add_launch_options(*command, arguments);
      continue;
    }
    if (std::string(verb.name) == "run") command->footer(kStopping);
    command->add_flag("--json", arguments.json, "Print JSON instead of text");
    if (std::string(verb.name) == "monitor") add_monitor_options(*command, arguments);
    if (!takes_verbose(verb)) continue;
    command->add_flag("--verbose", arguments.verbose,
                      "Of an error, print also the stack that torch gives it");
    if (std::string(verb.name) == "convert") {
      add_convert_options(*command, arguments);
      continue;
    }
    if (std::string(verb.name) == "eval") {
      command->add_option("DATA", arguments.target,
                          "Of a whole model: the file or folder to evaluate it on");
    }
    command->add_option("--set", arguments.sets, "key=value: overrides the file (repeatable)")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_option("--out", arguments.out,
                        std::string(verb.name) == "anatomy"
                            ? "Folder of the report (default: anatomy/<run.name>)"
                            : "Folder of the run (default: runs/<run.name>)");
    command->add_flag("--quiet", arguments.quiet, "Print errors only");
  }
}

}  // namespace tanren::cli
