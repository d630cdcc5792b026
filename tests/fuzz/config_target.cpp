#include "tanren/config/read_config.h"
#include "tanren/config/write_config.h"
#include "tests/fuzz/targets.h"

#include <algorithm>
#include <vector>

namespace tanren::fuzz {

namespace {

// Without the marks of default keys: a config that was written and read again sets every key.
std::string plain(const RunConfig& config) {
  std::string text = to_toml(config);
  constexpr std::string_view kMark = "  # default\n";
  for (size_t at = 0; (at = text.find(kMark, at)) != std::string::npos;) {
    text.replace(at, kMark.size(), "\n");
  }
  return text;
}

}  // namespace

bool config(std::string_view bytes) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= bytes.size();) {
    const size_t end = std::min(bytes.find('\x1e', at), bytes.size());
    parts.emplace_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  const std::vector<std::string> sets(parts.begin() + 1, parts.end());
  const KnownKinds known{"mlp", "convnet", "gpt2", "own"};
  return is_read(
      [&] {
        const auto read = parse_config(parts[0], "run.toml", "/data", sets, known);
        const std::string written = plain(read);
        std::string again;
        try {
          again = plain(parse_config(written, "config.toml", "/data", {}, known));
        } catch (const ConfigError& error) {
          throw std::logic_error("what was written is refused: " + std::string(error.what()));
        }
        if (again != written) throw std::logic_error("what was written reads as another config");
      },
      /*several_lines=*/true);
}

}  // namespace tanren::fuzz
