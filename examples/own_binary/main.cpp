#include "tanren/cli.h"

#include "lenet.h"

int main(int argc, char** argv) {
  tanren::ModelRegistry models;
  models.add("lenet", make_lenet);
  return tanren::cli::main(argc, argv, models);
}
