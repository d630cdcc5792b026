// A program of another project that trains a config with the installed tanren.
//   app CONFIG.toml RUN_FOLDER

#include "tanren/config/read_config.h"
#include "tanren/model/registry.h"
#include "tanren/run/run.h"

#include <exception>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "app CONFIG.toml RUN_FOLDER\n";
    return 2;
  }
  try {
    const tanren::ModelRegistry models;
    tanren::RunInput input;
    input.config = tanren::read_config(argv[1], /*sets=*/{}, models.kinds());
    input.folder = argv[2];
    const tanren::RunOutput output = tanren::run(input, models);
    std::cout << output.summary.steps << " steps, loss " << output.summary.final_loss << "\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
