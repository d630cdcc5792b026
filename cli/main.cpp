#include "tanren/cli.h"

int main(int argc, char** argv) { return tanren::cli::main(argc, argv, tanren::Registry()); }
