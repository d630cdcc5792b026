// Completion scripts for shells, made from the tables that the program itself reads: the verbs
// (verb_list.h), the keys (config/fields.h) and the words that the config's checks accept. So a
// script offers nothing that the program refuses. Called by `tanren completion SHELL`.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tanren::cli {

struct CompletionOption {
  std::string flag;  // "--set"
  std::string what;
  bool has_value = false;
};

struct CompletionVerb {
  std::string name;
  std::string what;
  std::vector<CompletionOption> options;
};

struct Vocabulary {
  std::string program;  // as typed
  std::vector<CompletionVerb> verbs;
  std::vector<std::string> keys;
  std::vector<std::string> sections;
  std::vector<std::string> objective_keys;                     // after objectives.NAME.
  std::map<std::string, std::vector<std::string>> words;       // of keys with a closed set
  std::map<std::string, std::vector<std::string>> flag_words;  // "--dtype": the same for flags
  std::vector<std::string> shells;
  std::vector<std::string> verbs_on_ranks;  // words that `launch` accepts first
};

// The script as text, for the shell in its name.
std::string bash_completion(const Vocabulary& vocabulary);
std::string zsh_completion(const Vocabulary& vocabulary);
std::string fish_completion(const Vocabulary& vocabulary);

}  // namespace tanren::cli
