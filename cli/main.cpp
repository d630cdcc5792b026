#include "cli/plain_main.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>

int main(int argc, char** argv) {
  const int code = tanren::cli::plain_main(argc, argv);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // All output is written and closed. Unloading libtorch would take longer than `tanren help` does.
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(code);
#else
  return code;
#endif
}
