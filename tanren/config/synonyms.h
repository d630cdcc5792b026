// Maps names from other trainers to the names here; the only place that words the error for an
// unknown key. Case and dashes are ignored. Invariant: advice that is followed changes nothing that
// is computed; if a name has no equal here, the advice says so.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// Advice for `key` (full key or last part), such as "precision.mode = \"fp16\""; empty if `key` is
// unknown. `value` (as text) makes the advice exact if it carries information: precision =
// "16-mixed". If `value` is "false" and the advice is for true, the advice says that.
std::optional<std::string> synonym(std::string_view key, std::string_view value = {});

// The name here for the value `word` of our key ("precision.mode", "float16" → "fp16").
std::optional<std::string> word_synonym(std::string_view key, std::string_view word);

// The two complete tables.
struct KeySynonym {
  std::string_view key, advice;  // key in lower case, with _ for -; advice as synonym() returns it
};
struct WordSynonym {
  std::string_view key, word, ours;  // the key is ours; `word` becomes `ours`
};
std::span<const KeySynonym> key_synonyms();
std::span<const WordSynonym> word_synonyms();

// "; here it is …", "; nearest: …" or "; see tanren help": the second half of an error line about a
// key that is not in `keys`.
std::string advice(const std::string& key, const std::vector<std::string>& keys,
                   std::string_view value = {});

// The section of `keys` that `name` is a misspelling of; empty if none is close.
std::string nearest_section(const std::string& name, const std::vector<std::string>& keys);

}  // namespace tanren
