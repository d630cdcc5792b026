// Encodes texts with a tokenizer's files, for tests/interop/check_tokenizers.py: reads lines of
// JSON,
// {"text": …} or {"text": …, "pair": …, "room": …}, and writes {"ids": […], "types": […]} for each.
//   token_ids TOKENIZER < texts.jsonl
#include "tanren/base/error.h"
#include "tanren/data/text/tokenizer.h"

#include <nlohmann/json.hpp>

#include <iostream>
#include <string>

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: token_ids TOKENIZER < texts.jsonl\n";
    return 2;
  }
  try {
    const auto tokenizer = tanren::load_tokenizer(std::filesystem::path(arguments[1]));
    for (std::string line; std::getline(std::cin, line);) {
      const auto asked = nlohmann::json::parse(line);
      const auto text = asked["text"].get<std::string>();
      nlohmann::json said;
      if (asked.contains("pair")) {
        std::vector<int32_t> types;
        said["ids"] = tokenizer->encode_pair(text, asked["pair"].get<std::string>(),
                                             asked["room"].get<int64_t>(), &types);
        said["types"] = types;
      } else {
        said["ids"] = tokenizer->encode(text);
        said["framed"] = tokenizer->encode_framed(text);
      }
      std::cout << said << "\n";
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
  return 0;
}
