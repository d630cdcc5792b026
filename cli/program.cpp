#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/cli.h"
#include "tanren/config/describe.h"
#include "tanren/config/objective_keys.h"
#include "tanren/config/read_config.h"
#include "tanren/config/renamed_keys.h"
#include "tanren/config/synonyms.h"
#include "tanren/run/fork_place.h"
#include "tanren/run/run_folder.h"
#include "cli/plain_main.h"
#include "cli/verb_list.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <set>
#include <utility>

namespace tanren::cli {

namespace fs = std::filesystem;

namespace {
// Suggests the nearest key, because an unknown flag is mostly meant as a key.
std::string key_advice(const std::vector<std::string>& extras) {
  for (const auto& extra : extras) {
    if (extra.rfind("--", 0) == 0) return advice(extra.substr(2, extra.find('=') - 2), all_keys());
  }
  return "; see tanren help";
}

constexpr const char* kFooter =
    "Exit codes: 0 done, 1 the run failed, 2 the input was wrong, 130 stopped by a signal or "
    "run.max_time, and resumable.\n"
    "Every key of a config: tanren help [KEY].";

}  // namespace

std::string shown(double value) { return short_text(value, 6); }

namespace {

// The settings that remove from a fork how the run of `folder` began, and when that start was to
// stop.
std::vector<std::string> without_start(const fs::path& folder) {
  const RunConfig config = recorded_config(folder);
  std::vector<std::string> sets;
  if (!config.model.init_from.empty()) sets.emplace_back("model.init_from=");
  if (!config.model.init_skip.empty()) sets.emplace_back("model.init_skip=[]");
  if (!config.model.init_rename.empty()) sets.emplace_back("model.init_rename=[]");
  if (!config.optimizer.init_from.empty()) sets.emplace_back("optimizer.init_from=");
  const std::set<std::string> inherited = inherited_keys(config);
  for (const auto& [name, own] : config.objectives) {
    const std::string key = "objectives." + name + ".optimizer.init_from";
    if (!own.optimizer.init_from.empty() && inherited.count(key) == 0) sets.push_back(key + "=");
  }
  if (config.run.stop_after) sets.emplace_back("run.stop_after=none");  // in a step folder's config
  return sets;
}

// The last name of a folder, also of ".".
std::string own_name(const fs::path& folder) {
  const fs::path place = fs::absolute(folder).lexically_normal();
  return (place.has_filename() ? place : place.parent_path()).filename().string();
}

Named read_fork(const Arguments& arguments, const Registry& registry) {
  const fs::path from = arguments.file, out = arguments.out;
  Named named;
  named.folder = out;
  if (!out.empty() && is_begun_fork(out, from)) {  // resumes without the source run
    named.config = config_of_folder(out, arguments.sets, registry.known());
    named.began = out;
    return named;
  }
  std::error_code none;
  if (!fs::is_directory(from, none)) {
    throw ConfigError("[cli] --fork needs a run folder or one of its step folders, not " +
                      from.string() + "; in a config file set run.fork_from");
  }
  if (out.empty()) throw ConfigError("[cli] a fork is a new run; name its folder with --out");
  std::vector<std::string> sets = without_start(from);
  sets.push_back("run.name=" + own_name(out));
  sets.push_back("run.fork_from=" + fs::absolute(from).lexically_normal().string());
  sets.insert(sets.end(), arguments.sets.begin(), arguments.sets.end());
  named.config = config_of_folder(from, sets, registry.known());
  if (fs::exists(out / "config.toml", none)) named.began = out;
  return named;
}

}  // namespace

Named read_named(const Arguments& arguments, const Registry& registry) {
  if (arguments.fork) return read_fork(arguments, registry);
  Named named;
  const fs::path file = arguments.file;
  if (fs::is_directory(file)) {
    named.config = config_of_folder(file, arguments.sets, registry.known());
    named.folder = arguments.out.empty() ? file : fs::path(arguments.out);
    named.began = file;
  } else {
    named.config = read_config(file, arguments.sets, registry.known());
    named.folder =
        arguments.out.empty() ? fs::path("runs") / named.config.run.name : fs::path(arguments.out);
  }
  return named;
}

std::set<std::string> requested_by(const Arguments& arguments) {
  std::set<std::string> keys;
  for (const std::string& set : arguments.sets) {
    keys.insert(current_key(set.substr(0, set.find('='))));
  }
  return keys;
}

std::optional<int> read_arguments(const std::vector<std::string>& words, Arguments& arguments) {
  CLI::App app{"tanren " TANREN_VERSION ": trains a model from one file, exactly",
               arguments.program};
  app.footer(kFooter);
  app.set_version_flag("--version", TANREN_VERSION);
  app.require_subcommand(1);
  add_verbs(app, arguments);
  const std::string first = words.empty() ? "" : words.front();
  if (!first.empty() && first[0] != '-') {
    std::vector<std::string> names;
    for (const Verb& verb : verbs()) names.push_back(verb.name);
    if (std::find(names.begin(), names.end(), first) == names.end()) {
      const std::string best = nearest(first, names);
      std::cerr << "[cli] unknown verb \"" << first << "\"; verbs are " << join(names)
                << (best.empty() ? "" : " (nearest: " + best + ")") << "\n";
      return 2;
    }
  }
  // After --, launch gets a program with its own options.
  const auto dashes = first == "launch" ? std::find(words.begin(), words.end(), "--") : words.end();
  if (dashes != words.end()) arguments.launch.program.assign(dashes + 1, words.end());
  try {
    std::vector<std::string> last_first(std::make_reverse_iterator(dashes), words.rend());
    app.parse(std::move(last_first));
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
    std::cerr << "[cli] " << first << " takes no " << join(extras, " ")
              << "; keys are set with --set KEY=VALUE" << key_advice(extras) << "\n";
    return 2;
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error, std::cout, std::cerr);
    return code == 0 ? 0 : 2;
  }
  return std::nullopt;
}

namespace {

// Prints the line of the error being handled. With --verbose, also prints its whole text, such as
// torch's stack.
void tell(const std::string& line, const Arguments& arguments) {
  std::cerr << line << "\n";
  if (!arguments.verbose) return;
  const std::string whole = whole_text_of_current();
  const bool begins_alike = whole.rfind(line + "\n", 0) == 0;
  if (whole != line) std::cerr << (begins_alike ? whole.substr(line.size() + 1) : whole) << "\n";
}

// Whether text of this process did not reach standard output although its reader is still there. A
// pager that ended, a terminal that is gone and a stream that the user closed lose nothing.
bool output_is_lost() {
  std::cout.flush();
  if (std::cout && std::ferror(stdout) == 0) return false;
  pollfd reader{STDOUT_FILENO, POLLOUT, 0};
  ::poll(&reader, 1, 0);
  return (reader.revents & (POLLERR | POLLHUP | POLLNVAL)) == 0;
}

// Runs the verb. Returns the exit code, after the error's line.
int run_verb(const Arguments& arguments, const Registry& registry) {
  try {
    return verb_named(arguments.verb).run(arguments, registry);
  } catch (const InputError& error) {
    tell(error.what(), arguments);
    return 2;
  } catch (const Error& error) {
    tell(error.what(), arguments);
    return 1;
  } catch (...) {
    const bool has_more = verb_named(arguments.verb).may_meet_torch && !arguments.verbose;
    tell("[" + arguments.verb + "] " + line_of_current() +
             (has_more ? "; --verbose shows where it comes from" : ""),
         arguments);
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv, const Registry& registry) {
  Arguments arguments;
  if (argc > 0) arguments.program = fs::path(argv[0]).filename().string();
  const auto ended = read_arguments({argv + std::min(argc, 1), argv + argc}, arguments);
  const int code = ended ? *ended : run_verb(arguments, registry);
  if (code != 0 || !output_is_lost()) return code;
  std::cerr << "[" << (ended ? "cli" : arguments.verb)
            << "] cannot write to standard output; make room, or send it elsewhere\n";
  return 1;
}

int plain_main(int argc, char** argv) { return main(argc, argv, Registry()); }

}  // namespace tanren::cli
