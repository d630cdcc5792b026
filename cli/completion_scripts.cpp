#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "cli/completion.h"

#include <string_view>

namespace tanren::cli {

namespace {

// `text` in single quotes, which all three shells read the same way.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string quoted_words(const std::vector<std::string>& words) { return quoted(join(words, " ")); }

// The keys as --set takes them.
std::string with_equals(const std::vector<std::string>& keys) {
  return quoted(join(keys, "= ") + "=");
}

// `program` as part of a function's name.
std::string identifier(const std::string& program) {
  std::string result = "_";
  for (const char c : program) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    result += plain ? c : '_';
  }
  return result;
}

// `text` with each @NAME@ replaced by its value.
std::string filled(std::string text, const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values) {
    const std::string mark = "@" + name + "@";
    for (size_t at = text.find(mark); at != std::string::npos;
         at = text.find(mark, at + value.size())) {
      text.replace(at, mark.size(), value);
    }
  }
  return text;
}

// For bash and zsh: "  KEY) echo 'word word' ;;" for every key or flag with a closed set.
std::string value_cases(const Vocabulary& vocabulary) {
  std::string text;
  for (const auto* table : {&vocabulary.words, &vocabulary.flag_words}) {
    for (const auto& [key, words] : *table) {
      text += "    " + key + ") echo " + quoted_words(words) + " ;;\n";
    }
  }
  return text;
}

std::vector<std::string> verb_names(const Vocabulary& vocabulary) {
  std::vector<std::string> names;
  for (const auto& verb : vocabulary.verbs) names.push_back(verb.name);
  return names;
}

std::vector<std::string> help_topics(const Vocabulary& vocabulary) {
  std::vector<std::string> topics = vocabulary.sections;
  topics.insert(topics.end(), vocabulary.keys.begin(), vocabulary.keys.end());
  return topics;
}

// zsh's `name:description`; a colon in the description would end the name.
std::string zsh_pair(const std::string& name, std::string what) {
  for (char& c : what) c = c == ':' ? ';' : c;
  return "\n    " + quoted(name + ":" + what);
}

// bash splits words at = and : before it asks for completions, and replaces only the last part. So
// the part before it is removed from the answers.
constexpr const char* kBash = R"sh(# Completion of @program@, printed by: @program@ completion bash
@function@_words() {
  case $1 in
@cases@  esac
}

@function@() {
  local line=${COMP_LINE:0:COMP_POINT}
  local word=${line##*[[:space:]]}
  local -a told=()
  read -ra told <<< "${line%"$word"}"
  local verb=${told[1]-} after='' before=${told[${#told[@]}-1]-} flags='' choices='' bare=''
  COMPREPLY=()
  if [ "$verb" = launch ]; then
    for after in "${told[@]:2}"; do
      case $after in
        @rank_cases@) verb=$after; break ;;
        --) return 0 ;;
      esac
    done
  fi
  case $verb in
@flags@  esac
  if [ -z "$verb" ]; then
    choices=@verbs@' --help --version'
  elif [ "$before" = --set ]; then
    if [[ $word == *=* ]]; then
      local key=${word%%=*} value
      for value in $(@function@_words "${key#objectives.*.}"); do choices+=" $key=$value"; done
      [ -n "$choices" ] || return 0
    else
      choices=@keys_equal@
      if [[ $word == objectives.*.* ]]; then
        local key start=${word%"${word#objectives.*.}"} own=@own_keys_equal@
        choices=''
        for key in $own; do choices+=" $start$key"; done
      fi
      compopt -o nospace 2> /dev/null
    fi
  elif [ "$before" = --out ]; then
    compopt +o default -o dirnames 2> /dev/null
    return 0
  elif [ -n "$(@function@_words "$before")" ]; then
    choices=$(@function@_words "$before")
  elif [[ $word == -* ]]; then
    choices=$flags
  elif [ "$verb" = help ]; then
    choices=@topics@
  elif [ "$verb" = completion ]; then
    choices=@shells@
  elif [ "$verb" = launch ] && [[ $before != -* ]]; then
    choices=@verbs_on_ranks@
  else
    return 0
  fi
  compopt +o default 2> /dev/null
  local breaks=''
  [[ $COMP_WORDBREAKS == *=* ]] && breaks+='='
  [[ $COMP_WORDBREAKS == *:* ]] && breaks+=':'
  [ -z "$breaks" ] || bare=${word%"${word##*["$breaks"]}"}
  local choice
  for choice in $choices; do
    [[ $choice == "$word"* ]] && COMPREPLY+=("${choice#"$bare"}")
  done
  return 0
}
complete -o default -F @function@ @program@
)sh";

constexpr const char* kZsh = R"sh(#compdef @program@
# Completion of @program@, printed by: @program@ completion zsh
@function@_words() {
  case $1 in
@cases@  esac
}

@function@() {
  local -a verbs flags keys
  verbs=(@verb_pairs@)
  keys=(@keys@)
  if (( CURRENT == 2 )); then
    _describe -t verbs verb verbs
    [[ $PREFIX == -* ]] && compadd -- --help --version
    return
  fi
  local before=$words[CURRENT-1]
  if [[ $before == --set ]]; then
    if [[ $PREFIX == *=* ]]; then
      local key=${PREFIX%%=*}
      compset -P '*='
      local -a choices
      choices=(${=$(@function@_words ${key#objectives.*.})})
      if (( $#choices )); then compadd -a choices; else _files; fi
    else
      if [[ $PREFIX == objectives.*.* ]]; then
        local -a own
        own=(@own_keys@)
        keys=(${PREFIX%${PREFIX#objectives.*.}}${^own})
      fi
      compadd -S = -a keys
    fi
    return
  elif [[ $before == --out ]]; then
    _files -/
    return
  elif [[ -n $(@function@_words $before) ]]; then
    compadd -- ${=$(@function@_words $before)}
    return
  fi
  local verb=$words[2]
  if [[ $verb == launch ]]; then
    local -a inner
    inner=(${(M)words[3,CURRENT-1]:#(@rank_cases@)})
    if (( $#inner )); then
      verb=$inner[1]
    elif (( ${words[(I)--]} )) || [[ $PREFIX != -* && $before == -* ]]; then
      _files
      return
    fi
  fi
  case $verb in
@flags@  esac
  if [[ $PREFIX == -* ]]; then
    _describe -o -t options option flags
  elif [[ $verb == help ]]; then
    compadd -- @topics@
  elif [[ $verb == completion ]]; then
    compadd -- @shells@
  elif [[ $verb == launch ]]; then
    compadd -- @verbs_on_ranks@
  elif [[ $verb != doctor && $verb != monitor ]]; then
    _files
  fi
}

# Run by the completion system as a file of that name, else read by a start file.
if [[ $funcstack[1] == @function@ ]]; then @function@ "$@"; else compdef @function@ @program@; fi
)sh";

// fish adds no space after a word that ends with =.
constexpr const char* kFish = R"sh(# Completion of @program@, printed by: @program@ completion fish
function _@function@_words
  switch $argv[1]
@cases@    case '*'
      string split ' ' -- $argv[2]
  end
end

function _@function@_set
  set -l word (commandline -ct)
  set -l start (string match -r '^objectives\\.[^.]+\\.' -- $word)
  if test -n "$start"
    set -l rest (string replace -- $start '' $word)
    string replace -r '^' $start -- (_@function@_words $rest @own_keys_equal@)
  else
    _@function@_words $word @keys_equal@
  end
end

complete -c @program@ -n __fish_use_subcommand -f
complete -c @program@ -n __fish_use_subcommand -l help -d 'Print this help message and exit'
complete -c @program@ -n __fish_use_subcommand -l version -d 'Print the version'
)sh";

}  // namespace

std::string bash_completion(const Vocabulary& vocabulary) {
  std::string flags;
  for (const auto& verb : vocabulary.verbs) {
    std::vector<std::string> names;
    for (const auto& option : verb.options) names.push_back(option.flag);
    flags += "    " + verb.name + ") flags=" + quoted_words(names) + " ;;\n";
  }
  return filled(kBash, {{"cases", value_cases(vocabulary)},
                        {"flags", flags},
                        {"verbs", quoted_words(verb_names(vocabulary))},
                        {"keys_equal", with_equals(vocabulary.keys)},
                        {"own_keys_equal", with_equals(vocabulary.objective_keys)},
                        {"rank_cases", join(vocabulary.verbs_on_ranks, "|")},
                        {"verbs_on_ranks", quoted_words(vocabulary.verbs_on_ranks)},
                        {"topics", quoted_words(help_topics(vocabulary))},
                        {"shells", quoted_words(vocabulary.shells)},
                        {"function", identifier(vocabulary.program)},
                        {"program", vocabulary.program}});
}

std::string zsh_completion(const Vocabulary& vocabulary) {
  std::string pairs, flags;
  for (const auto& verb : vocabulary.verbs) {
    pairs += zsh_pair(verb.name, verb.what);
    std::string of_verb;
    for (const auto& option : verb.options) of_verb += zsh_pair(option.flag, option.what);
    flags += "  " + verb.name + ") flags=(" + of_verb + ") ;;\n";
  }
  return filled(kZsh, {{"cases", value_cases(vocabulary)},
                       {"flags", flags},
                       {"verb_pairs", pairs},
                       {"keys", join(vocabulary.keys, " ")},
                       {"own_keys", join(vocabulary.objective_keys, " ")},
                       {"rank_cases", join(vocabulary.verbs_on_ranks, "|")},
                       {"verbs_on_ranks", join(vocabulary.verbs_on_ranks, " ")},
                       {"topics", join(help_topics(vocabulary), " ")},
                       {"shells", join(vocabulary.shells, " ")},
                       {"function", identifier(vocabulary.program)},
                       {"program", vocabulary.program}});
}

std::string fish_completion(const Vocabulary& vocabulary) {
  std::string cases;
  for (const auto& [key, words] : vocabulary.words) {
    std::vector<std::string> whole;
    for (const auto& word : words) whole.push_back(key + "=" + word);
    cases += "    case '" + key + "=*'\n      string split ' ' -- " + quoted_words(whole) + "\n";
  }
  cases += "    case '*=*'\n      __fish_complete_path\n";
  std::string text = filled(kFish, {{"cases", cases},
                                    {"keys_equal", with_equals(vocabulary.keys)},
                                    {"own_keys_equal", with_equals(vocabulary.objective_keys)},
                                    {"function", identifier(vocabulary.program)},
                                    {"program", vocabulary.program}});
  const std::string start = "complete -c " + vocabulary.program + " -n ";
  for (const auto& verb : vocabulary.verbs) {
    text += fmt::format("{}__fish_use_subcommand -f -a {} -d {}\n", start, verb.name,
                        quoted(verb.what));
    const std::string here = start + quoted("__fish_seen_subcommand_from " + verb.name);
    for (const auto& option : verb.options) {
      text += here + " -l " + option.flag.substr(2) + " -d " + quoted(option.what);
      const auto words = vocabulary.flag_words.find(option.flag);
      if (option.flag == "--set") {
        text += " -x -a '(_" + identifier(vocabulary.program) + "_set)'";
      } else if (words != vocabulary.flag_words.end()) {
        text += " -x -a " + quoted_words(words->second);
      } else if (option.flag == "--out") {
        text += " -x -a '(__fish_complete_directories)'";
      } else if (option.has_value) {
        text += " -r";
      }
      text += "\n";
    }
    if (verb.name == "help")
      text += here + " -f -a " + quoted_words(help_topics(vocabulary)) + "\n";
    if (verb.name == "completion")
      text += here + " -f -a " + quoted_words(vocabulary.shells) + "\n";
    if (verb.name == "launch") {
      const std::string inner = join(vocabulary.verbs_on_ranks, " ");
      text += start +
              quoted("__fish_seen_subcommand_from launch; and not __fish_seen_subcommand_from " +
                     inner) +
              " -a " + quoted(inner) + "\n";
    }
  }
  return text;
}

}  // namespace tanren::cli
