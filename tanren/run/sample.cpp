#include "tanren/run/sample.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/eval_mode_scope.h"

#include <ATen/core/grad_mode.h>

#include <charconv>
#include <sstream>

namespace tanren {

namespace {

std::vector<int64_t> tokens_of(const std::string& prompt, bool bytes) {
  std::vector<int64_t> tokens;
  if (prompt.empty()) return {bytes ? int64_t{'\n'} : int64_t{0}};
  if (bytes) {
    for (const unsigned char byte : prompt) tokens.push_back(byte);
    return tokens;
  }
  std::istringstream words(prompt);
  for (std::string word; words >> word;) {
    int64_t token = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || end != word.data() + word.size()) {
      throw ConfigError("[generate] prompt has \"" + word +
                        "\", and this data is token numbers; write for example \"15496 11\"");
    }
    tokens.push_back(token);
  }
  return tokens;
}

std::string text_of(const std::vector<int64_t>& tokens, bool bytes) {
  std::string text;
  for (const int64_t token : tokens) {
    if (bytes) {
      text += static_cast<char>(token);
    } else {
      text += (text.empty() ? "" : " ") + to_text(token);
    }
  }
  return bytes ? printable(text) : text;
}

// Length of the well-formed UTF-8 sequence at `at` (RFC 3629), 0 if there is none.
size_t sequence_length(const std::string& bytes, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u;
  };
  const auto follows = [&](size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool fine = follows(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF);
    return fine && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool fine = follows(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF);
    return fine && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string printable(const std::string& bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = sequence_length(bytes, at);
    const auto first = static_cast<unsigned char>(bytes[at]);
    const bool control = length == 1 && (first < 0x20 || first == 0x7F);
    // U+0080 to U+009F are control characters too.
    const bool high_control =
        length == 2 && first == 0xC2 && static_cast<unsigned char>(bytes[at + 1]) < 0xA0;
    const bool plain = length > 0 && !high_control && (!control || first == '\n' || first == '\t');
    text += plain ? bytes.substr(at, length) : "\xEF\xBF\xBD";
    at += std::max<size_t>(length, 1);
  }
  return text;
}

std::optional<std::string> write_sample(const RunState& run, const Parts& parts) {
  const GenerateOptions& options = parts.plan.generate;
  if (!run.task.generate || options.tokens == 0) return std::nullopt;
  const bool bytes = parts.plan.data.train.kind == "text";
  const GenerateRequest request{.prompt = tokens_of(options.prompt, bytes),
                                .tokens = options.tokens,
                                .temperature = options.temperature,
                                .top_k = options.top_k,
                                .top_p = options.top_p,
                                .seed = static_cast<uint64_t>(options.seed),
                                .num_beams = options.num_beams,
                                .length_penalty = options.length_penalty,
                                .stop_token = options.stop_token};
  const at::NoGradGuard no_grad;
  const EvalModeScope eval_mode(*run.task.module);
  const bool wants_average = parts.plan.average.evaluate;
  const AverageScope average(wants_average ? run.averages() : std::vector<WeightAverage*>());
  const WindowScope window(parts.plan.precision, parts.parallel->open_windows());
  const AutocastScope autocast(parts.device.type(), parts.plan.precision);
  return text_of(run.task.generate(request), bytes);
}

}  // namespace tanren
