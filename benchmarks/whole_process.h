// A program that runs from its start to its end beside a benchmark: its wall time, and its peak
// resident memory as counted by the kernel.
#pragma once

#include "benchmarks/paired.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tanren::bench {

struct Usage {
  double seconds = 0, megabytes = 0;
};

// Discards the program's standard output. Exits this process if the program fails.
inline Usage run_whole(const std::vector<std::string>& command) {
  Usage usage;
  rusage counted{};
  usage.seconds = seconds([&] {
    const pid_t child = ::fork();
    if (child == 0) {
      std::vector<char*> argv;
      argv.reserve(command.size() + 1);
      for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, STDOUT_FILENO);
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    int status = 0;
    ::wait4(child, &status, 0, &counted);
    if (status != 0) {
      std::fprintf(stderr, "%s failed\n", command[0].c_str());
      std::exit(1);
    }
  });
  usage.megabytes = static_cast<double>(counted.ru_maxrss) / 1024;
  return usage;
}

}  // namespace tanren::bench
