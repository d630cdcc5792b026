#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/predict/generate_text.h"
#include "cli/verbs.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <string_view>

namespace tanren::cli {

namespace {

// Thrown when the reader of the text is gone. The verb then ends quietly, as other filters do.
struct TextReaderIsGone {};

void print_part(std::string_view part) {
  errno = 0;
  std::cout << part << std::flush;
  if (std::cout) return;
  if (errno == EPIPE) throw TextReaderIsGone();
  throw DiskError(std::string("[generate] cannot write to standard output (") +
                  std::strerror(errno) + "); make room");
}

int generate_and_print(const Arguments& arguments, const Registry& registry) {
  GenerateInput input{.model = arguments.file, .prompt = arguments.prompt};
  input.sets = arguments.sets;
  if (!arguments.json) input.see = print_part;
  const GenerateOutput output = generate_text(input, registry);
  if (!output.is_first) return 0;
  if (arguments.json) {
    const nlohmann::ordered_json json{{"text", output.text}, {"weights", output.weights}};
    print_part(json_text(json) + "\n");
  } else {
    print_part("\n");
  }
  return 0;
}

}  // namespace

int generate(const Arguments& arguments, const Registry& registry) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return generate_and_print(arguments, registry);
  } catch (const TextReaderIsGone&) {
    return 0;
  }
}

}  // namespace tanren::cli
