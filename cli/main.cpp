#include "tanren/cli.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>

int main(int argc, char** argv) {
  const int code = tanren::cli::main(argc, argv, tanren::Registry());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // All is written and closed, and taking libtorch down takes longer than all of `tanren help`.
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(code);
#else
  return code;
#endif
}
