// Runs programs as a user does, for tests of examples and documents. Torch-free. Not thread-safe.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace tanren::testing {

struct ShellResult {
  int code = 0;        // exit code, or 128 + signal as in a shell
  std::string output;  // stdout and stderr together
};

// Runs one shell line in `folder`.
inline ShellResult shell(const std::string& line, const std::filesystem::path& folder) {
  const std::string command = "cd '" + folder.string() + "' && { " + line + "\n} 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no shell for: " + line);
  ShellResult result;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
    result.output.append(buffer, got);
  }
  const int status = ::pclose(pipe);
  result.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

// Returns the keys of a ci.toml as command-line options: " --set run.epochs=1 --set run.threads=1".
// The file may hold only [section] and key = value lines.
inline std::string ci_options(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string options, section;
  for (std::string line; std::getline(in, line);) {
    line = line.substr(0, line.find('#'));
    const auto equals = line.find(" = ");
    if (!line.empty() && line[0] == '[') {
      section = line.substr(1, line.find(']') - 1);
    } else if (equals != std::string::npos) {
      options += " --set " + section + "." + line.substr(0, equals) + "=" + line.substr(equals + 3);
    }
  }
  if (options.empty()) throw std::runtime_error("no options in " + file.string());
  return options;
}

}  // namespace tanren::testing
