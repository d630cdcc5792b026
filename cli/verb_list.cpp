#include "cli/verb_list.h"

#include "tanren/base/names.h"

#include <algorithm>
#include <string>

namespace tanren::cli {

// One file for each verb.
int run(const Arguments& arguments, const Registry& registry);
int plan(const Arguments& arguments, const Registry& registry);
int eval(const Arguments& arguments, const Registry& registry);
int predict(const Arguments& arguments, const Registry& registry);
int generate(const Arguments& arguments, const Registry& registry);
int launch(const Arguments& arguments, const Registry& registry);
int summary(const Arguments& arguments, const Registry& registry);
int sweep(const Arguments& arguments, const Registry& registry);
int anatomy(const Arguments& arguments, const Registry& registry);
int quantize(const Arguments& arguments, const Registry& registry);
int convert(const Arguments& arguments, const Registry& registry);
int doctor(const Arguments& arguments, const Registry& registry);
int monitor(const Arguments& arguments, const Registry& registry);
int runs(const Arguments& arguments, const Registry& registry);
int help(const Arguments& arguments, const Registry& registry);
int completion(const Arguments& arguments, const Registry& registry);

namespace {

constexpr const char* kStopping =
    "Ctrl-C, SIGTERM, SIGHUP and run.max_time save and stop: exit code 130, and the same command "
    "resumes. A second Ctrl-C ends at once, unsaved.";

constexpr const char* kConfigOrRun = "config.toml or run folder";

CLI::Option* file_option(CLI::App& command, Arguments& arguments, const char* what) {
  return command.add_option("FILE", arguments.file, what)->required();
}

void json_option(CLI::App& command, Arguments& arguments) {
  command.add_flag("--json", arguments.json, "Print JSON instead of text");
}

void force_option(CLI::App& command, Arguments& arguments) {
  command.add_flag("--force", arguments.force, "Replace the file if it is there");
}

void verbose_option(CLI::App& command, Arguments& arguments) {
  command.add_flag("--verbose", arguments.verbose,
                   "Of an error, print also the stack that torch gives it");
}

void set_option(CLI::App& command, Arguments& arguments) {
  command.add_option("--set", arguments.sets, "key=value: overrides the file (repeatable)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

// The options of verbs that read a config.
void config_options(CLI::App& command, Arguments& arguments,
                    const char* out = "Folder of the run (default: runs/<run.name>)") {
  set_option(command, arguments);
  command.add_option("--out", arguments.out, out);
  command.add_flag("--quiet", arguments.quiet, "Print errors only");
}

void plan_options(CLI::App& command, Arguments& arguments) {
  file_option(command, arguments, kConfigOrRun);
  json_option(command, arguments);
  verbose_option(command, arguments);
  config_options(command, arguments);
}

void planning_options(CLI::App& command, Arguments& arguments) {
  plan_options(command, arguments);
  command.add_flag("--fork", arguments.fork,
                   "Make a new run in --out that goes on from the checkpoint of the run folder, or "
                   "step folder, FILE, under its config and --set");
}

void run_options(CLI::App& command, Arguments& arguments) {
  planning_options(command, arguments);
  command.footer(kStopping);
}

void eval_options(CLI::App& command, Arguments& arguments) {
  file_option(command, arguments, "run folder, or model.tanren.safetensors");
  json_option(command, arguments);
  verbose_option(command, arguments);
  command.add_option("DATA", arguments.target,
                     "The file or folder to evaluate on; a run folder has its own without it");
  config_options(command, arguments,
                 "New folder for the outputs, as PNG files, of a run folder or a whole model; of a "
                 "config file: the folder of its run");
  command.add_option("--predictions", arguments.predictions,
                     "New .csv or .jsonl file: row, target, label and score of each sample");
  force_option(command, arguments);
}

void predict_options(CLI::App& command, Arguments& arguments) {
  file_option(command, arguments,
              "run folder, model.tanren.safetensors, or converted folder of a text classifier");
  verbose_option(command, arguments);
  command
      .add_option("SOURCE", arguments.target,
                  "What to predict on, without labels: .csv, .tsv, .jsonl, lines of text, image or "
                  "folder of images, .safetensors; - is standard input")
      ->required();
  config_options(command, arguments,
                 "File to write, .csv, .jsonl or .safetensors (default: SOURCE's name with "
                 ".predictions.csv; of standard input or a pipe: standard output)");
  force_option(command, arguments);
  command.footer(
      "Ctrl-C, SIGTERM and SIGHUP keep the rows that are whole: exit code 130, and the same "
      "command "
      "goes on there.");
}

void generate_options(CLI::App& command, Arguments& arguments) {
  file_option(command, arguments,
              "run folder, model.tanren.safetensors, or converted folder of a language model");
  command.add_option("--prompt", arguments.prompt,
                     "Text to go on from (default: generate.prompt); without a tokenizer, token "
                     "numbers: \"15496 11\"");
  json_option(command, arguments);
  verbose_option(command, arguments);
  set_option(command, arguments);
  command.footer(
      "generate.tokens, temperature, top_k, top_p, seed, num_beams: tanren help "
      "generate.");
}

void sweep_options(CLI::App& command, Arguments& arguments) {
  file_option(
      command, arguments,
      "config.toml with [[sweep.space]], or folder of a sweep; with sweep.find: config.toml "
      "or run folder");
  json_option(command, arguments);
  verbose_option(command, arguments);
  config_options(command, arguments, "Folder of the sweep (default: sweeps/<run.name>)");
  command.footer(
      "Ctrl-C, SIGTERM and SIGHUP save the trials and stop: exit code 130. The same command, or "
      "tanren sweep FOLDER, goes on, also after a kill.\n"
      "--set sweep.find=learning_rate finds a learning rate by 100 updates in memory, without "
      "trials.");
}

void anatomy_options(CLI::App& command, Arguments& arguments) {
  file_option(command, arguments, kConfigOrRun);
  json_option(command, arguments);
  verbose_option(command, arguments);
  config_options(command, arguments, "Folder of the report (default: anatomy/<run.name>)");
  command.add_flag("--no-advice", arguments.no_advice,
                   "Measure the config alone, without rehearsing other settings");
}

void quantize_options(CLI::App& command, Arguments& arguments) {
  file_option(command, arguments, "folder of a finished run, or model.tanren.safetensors");
  json_option(command, arguments);
  verbose_option(command, arguments);
  command.add_option("DATA", arguments.target,
                     "The file or folder that judges; a run folder has its own without it. Of a "
                     "whole model, the first quantize.samples calibrate");
  config_options(command, arguments,
                 "Folder of the model and its report (default: quantized beside the model)");
  force_option(command, arguments);
  command.footer(
      "Without quantize.scheme every scheme is measured, and the cheapest within "
      "quantize.tolerance written: tanren help quantize.");
}

void convert_options(CLI::App& command, Arguments& arguments) {
  file_option(command, arguments, "safetensors, .pt or text file, run folder");
  json_option(command, arguments);
  verbose_option(command, arguments);
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

void monitor_options(CLI::App& command, Arguments& arguments) {
  json_option(command, arguments);
  command.add_flag("--once", arguments.once, "Look once and end");
  command.add_option("--interval", arguments.interval,
                     "Seconds between looks, 0.1 to 3600 (default 1; with --once, over which "
                     "shares are taken: 0.2)");
}

void runs_options(CLI::App& command, Arguments& arguments) {
  command.add_option("FOLDER", arguments.file, "Folder of run folders (default: runs)");
  json_option(command, arguments);
}

void launch_options(CLI::App& command, Arguments& arguments) {
  LaunchArguments& launch = arguments.launch;
  command.add_option("-n,--ranks", launch.ranks, "Ranks of this machine");
  command.add_option("--nodes", launch.nodes, "Machines; launch runs once on each (default 1)");
  command.add_option("--node-rank", launch.node_rank, "Which of the machines this is, from 0");
  command.add_option("--master", launch.master,
                     "HOST:PORT where the ranks meet: an address of machine 0, and a port there");
  command.footer("tanren launch -n 4 run FILE …     verbs: " + join(verbs_on_ranks()) +
                 "\ntanren launch -n 4 -- PROGRAM …   a program that reads RANK and WORLD_SIZE\n" +
                 kStopping);
  // The verb and all words after it are read by the verb itself.
  command.prefix_command();
  command.callback([&command, &arguments] {
    arguments.verb = "launch";
    arguments.launch.verb = command.remaining();
  });
}

void help_options(CLI::App& command, Arguments& arguments) {
  file_option(command, arguments, "key or section (all if left out)")->required(false);
}

void completion_options(CLI::App& command, Arguments& arguments) {
  file_option(command, arguments, "bash, zsh or fish");
}

}  // namespace

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all = {
      {"run", "Train from a config file, or resume a run folder", run_options, run,
       /*on_ranks=*/true, /*may_meet_torch=*/true},
      {"plan", "Say what a run would do, and why; start nothing", planning_options, plan,
       /*on_ranks=*/false, /*may_meet_torch=*/true},
      {"eval", "Evaluate a run folder's newest checkpoint, or a whole model, on DATA", eval_options,
       eval, /*on_ranks=*/true, /*may_meet_torch=*/true},
      {"predict", "Write what a model says of each row, text or image, without labels",
       predict_options, predict, /*on_ranks=*/true, /*may_meet_torch=*/true},
      {"generate", "Go on from a prompt with a language model, and print the text as it comes",
       generate_options, generate, /*on_ranks=*/false, /*may_meet_torch=*/true},
      {"launch", "Start a verb, or a program of your own, as several ranks that work together",
       launch_options, launch},
      {"summary", "Show the model module by module: shapes, parameters, multiply-adds, memory",
       plan_options, summary, /*on_ranks=*/false, /*may_meet_torch=*/true},
      {"sweep", "Search for good values of a config's keys; each trial is a run", sweep_options,
       sweep, /*on_ranks=*/false, /*may_meet_torch=*/true},
      {"anatomy", "Run a few steps and report where time and memory go: operations, blocks, stages",
       anatomy_options, anatomy, /*on_ranks=*/false, /*may_meet_torch=*/true},
      {"quantize", "Write a trained model with 8-bit weights, and say what they cost and save",
       quantize_options, quantize, /*on_ranks=*/false, /*may_meet_torch=*/true},
      {"convert",
       "Turn weights into another format or a folder for Python, list them, or tokenize a text",
       convert_options, convert, /*on_ranks=*/false, /*may_meet_torch=*/true},
      {"doctor", "Say what this machine offers to a run", json_option, doctor},
      {"monitor", "Watch this machine: devices, memory, processors and the runs on it",
       monitor_options, monitor},
      {"runs", "List the run folders of a folder: state, step, loss, best evaluation, age",
       runs_options, runs},
      {"help", "Explain the config's keys", help_options, help},
      {"completion", "Print a script that completes verbs, keys and values in a shell",
       completion_options, completion},
  };
  return all;
}

const Verb& verb_named(const std::string& name) {
  return *std::find_if(verbs().begin(), verbs().end(),
                       [&](const Verb& verb) { return verb.name == name; });
}

std::vector<std::string> verbs_on_ranks() {
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) {
    if (verb.on_ranks) names.push_back(verb.name);
  }
  return names;
}

void add_verbs(CLI::App& app, Arguments& arguments) {
  for (const Verb& verb : verbs()) {
    CLI::App* command = app.add_subcommand(verb.name, verb.what);
    command->callback([&arguments, name = verb.name] { arguments.verb = name; });
    verb.add_options(*command, arguments);
  }
}

}  // namespace tanren::cli
