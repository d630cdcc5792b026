// The readers of untrusted files, each as a function of arbitrary bytes. libFuzzer calls them
// (`make fuzz`), and replay_test calls them with the seeds and every input that once broke one.
// They return true if the bytes were read, false if an InputError refused them; other exceptions
// escape.
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
bool quantized(std::string_view bytes);  // the 8-bit weights of a whole model's file
bool pickle(std::string_view bytes);     // data.pkl of a .pt file with two storages
bool index(std::string_view bytes);      // …safetensors.index.json
bool tokenizer(std::string_view bytes);  // first byte: file kind; '\x1e' separates two files
bool package(std::string_view bytes);    // manifest.json of a package
bool config(std::string_view bytes);     // run.toml, then a --set after each '\x1e'

// A temporary folder of this process, for readers that need a path; removed at the end.
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

// Whether `read` accepted its input. It may throw only an InputError with one line per problem.
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
