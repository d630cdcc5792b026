// The readers of files that strangers made, each as a function of hostile bytes. libFuzzer calls them
// (`make fuzz`), and replay_test calls them with the seeds and every input that once broke one.
// True: the bytes were read; false: refused as bad input, in one line. Any other exception escapes.
#pragma once

#include "tanren/base/error.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tanren::fuzz {

bool safetensors(std::string_view bytes);
bool pt(std::string_view bytes);         // a whole .pt file
bool pickle(std::string_view bytes);     // data.pkl of one, with two storages beside it
bool index(std::string_view bytes);      // …safetensors.index.json
bool tokenizer(std::string_view bytes);  // first byte: which of its files; '\x1e' parts two of them
bool config(std::string_view bytes);     // run.toml, then a --set after each '\x1e'

// A folder of this process for the files that the readers want, gone at the end.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "tanren-fuzz-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed for " + name);
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// Whether `read` took its input; what it may throw is an InputError of one line a problem.
template <class F>
bool is_read(F&& read, bool several_lines = false) {
  try {
    read();
    return true;
  } catch (const InputError& error) {
    const std::string_view text = error.what();
    if (text.substr(0, 1) != "[" || (!several_lines && text.find('\n') != std::string_view::npos)) {
      throw std::logic_error("the refusal is no line of its own: " + std::string(text));
    }
    return false;
  }
}

}  // namespace tanren::fuzz
