#include "cli/completion.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/config/describe.h"
#include "tanren/config/validate.h"
#include "cli/verb_list.h"

#include <iostream>

namespace tanren::cli {

namespace {

using Script = std::string (*)(const Vocabulary&);
const std::map<std::string, Script> kScripts = {
    {"bash", bash_completion}, {"fish", fish_completion}, {"zsh", zsh_completion}};

std::vector<CompletionVerb> described_verbs() {
  CLI::App app;
  Arguments arguments;
  add_verbs(app, arguments);
  std::vector<CompletionVerb> verbs;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    CompletionVerb verb{command->get_name(), command->get_description(), {}};
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_lnames().empty()) continue;  // FILE
      verb.options.push_back({"--" + option->get_lnames().front(), option->get_description(),
                              option->get_items_expected_max() > 0});
    }
    verbs.push_back(std::move(verb));
  }
  return verbs;
}

Vocabulary vocabulary(const std::string& program, const Registry& registry) {
  Vocabulary result;
  result.program = program;
  result.verbs = described_verbs();
  result.keys = all_keys();
  result.objective_keys = objective_keys();
  for (const std::string& key : result.keys) {
    const std::string section = key.substr(0, key.rfind('.'));
    if (result.sections.empty() || result.sections.back() != section) {
      result.sections.push_back(section);
    }
  }
  result.words = closed_sets(registry.known());
  result.flag_words["--dtype"] = {"fp32", "fp16", "bf16", "fp64"};
  for (const auto& [shell, script] : kScripts) result.shells.push_back(shell);
  result.verbs_on_ranks = verbs_on_ranks();
  return result;
}

}  // namespace

int completion(const Arguments& arguments, const Registry& registry) {
  const Vocabulary words = vocabulary(arguments.program, registry);
  const auto found = kScripts.find(arguments.file);
  if (found == kScripts.end()) {
    throw ConfigError("[cli] there is no completion for \"" + arguments.file + "\"; shells are " +
                      join(words.shells));
  }
  std::cout << found->second(words);
  return 0;
}

}  // namespace tanren::cli
