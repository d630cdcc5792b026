// tanren's own main without the headers of a registry, which include torch and take seconds.
#pragma once

namespace tanren::cli {

// main() of tanren/cli.h with the built-in models alone.
int plain_main(int argc, char** argv);

}  // namespace tanren::cli
