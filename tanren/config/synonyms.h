// Names that people bring from other trainers, and what they are called here; the one place that
// words an unknown key. Upper case and dashes do not matter. Invariant: advice that is taken changes
// nothing that is computed; what has no equal here is told so.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// Advice for `key` (full key or last part), such as "precision.mode = \"fp16\""; nothing if unknown.
// `value` (as text) makes it exact where the value tells more: precision = "16-mixed". What true stands
// for is said so where the value is "false".
std::optional<std::string> synonym(std::string_view key, std::string_view value = {});

// What the value `word` of our key is called here ("precision.mode", "float16" → "fp16").
std::optional<std::string> word_synonym(std::string_view key, std::string_view word);

// Both tables, whole.
struct KeySynonym {
  std::string_view key, advice;  // in lower case, with _ for -; what synonym() returns
};
struct WordSynonym {
  std::string_view key, word, ours;  // of our key
};
std::span<const KeySynonym> key_synonyms();
std::span<const WordSynonym> word_synonyms();

// "; here it is …", "; nearest: …" or "; see tanren help": the second half of a line about a key
// that is none of `keys`.
std::string advice(const std::string& key, const std::vector<std::string>& keys,
                   std::string_view value = {});

// The section of `keys` that `name` is a misspelling of; empty if none is near.
std::string nearest_section(const std::string& name, const std::vector<std::string>& keys);

}  // namespace tanren
