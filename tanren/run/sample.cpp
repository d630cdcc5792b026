#include "tanren/run/sample.h"

#include "tanren/base/error.h"
#include "tanren/base/eval_mode_scope.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/data/text/encoding.h"
#include "tanren/data/text/source_tokenizer.h"
#include "tanren/data/text/tokenizer.h"
#include "tanren/precision/autocast_scope.h"

#include <ATen/core/grad_mode.h>

#include <charconv>
#include <iterator>
#include <memory>
#include <sstream>

namespace tanren {

namespace {

// The tokens of a model as text, and text as tokens.
class TokenText {
 public:
  TokenText(const Plan& plan, const DataInfo& info) : bytes_(plan.data.train.kind == "text") {
    if (info.tokenizer == nullptr) return;
    tokenizer_ = load_tokenizer(*info.tokenizer, "tokenizer");
    bytes_ = false;
  }

  bool is_text() const { return bytes_ || tokenizer_ != nullptr; }

  std::vector<int64_t> tokens_of(const std::string& prompt) const {
    if (prompt.empty()) return {begin()};
    std::vector<int64_t> tokens;
    if (tokenizer_ != nullptr) {
      const TokenIds ids = tokenizer_->encode(prompt);
      tokens.assign(ids.begin(), ids.end());
      return tokens;
    }
    if (bytes_) {
      for (const unsigned char byte : prompt) tokens.push_back(byte);
      return tokens;
    }
    std::istringstream words(prompt);
    for (std::string word; words >> word;) {
      int64_t token = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
      if (error != std::errc() || end != word.data() + word.size()) {
        throw ConfigError("[generate] prompt has \"" + word +
                          "\", and this data is token numbers; write for example \"15496 11\", or "
                          "train with the tokenizer in data.train.tokenizer");
      }
      tokens.push_back(token);
    }
    return tokens;
  }

  // The text that `token` adds after `before` (-1: it is the first). Its bytes may end within a
  // character.
  std::string text_of(int64_t before, int64_t token) const {
    if (bytes_) return {static_cast<char>(token)};
    if (tokenizer_ == nullptr) return (before < 0 ? "" : " ") + to_text(token);
    if (token >= tokenizer_->vocab_size())
      return std::string(kReplacementCharacter);  // the model has more
    const auto id = static_cast<int32_t>(token);
    if (before < 0 || before >= tokenizer_->vocab_size()) return tokenizer_->decode({id});
    const auto previous = static_cast<int32_t>(before);
    return tokenizer_->decode({previous, id}).substr(tokenizer_->decode({previous}).size());
  }

  // How many tokens have a text; 0: each that the model has.
  int64_t vocab() const { return tokenizer_ != nullptr ? tokenizer_->vocab_size() : 0; }

  // Whether a text without a prompt begins with a token that is not part of the text.
  bool hides_begin() const { return tokenizer_ != nullptr && end_of_text(*tokenizer_); }

 private:
  // The token from which a text without a prompt continues.
  int64_t begin() const {
    if (bytes_) return '\n';
    if (tokenizer_ == nullptr) return 0;
    if (const auto end = end_of_text(*tokenizer_)) return *end;
    const TokenIds line = tokenizer_->encode("\n");
    return line.empty() ? 0 : line.front();
  }

  bool bytes_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

// The text so far, which is passed on in whole characters.
class GrowingText {
 public:
  GrowingText(const TokenText& texts, const SeeText& see) : texts_(texts), see_(see) {}

  // `is_shown`: false for a token that is not part of the text.
  void add(int64_t token, bool is_shown = true) {
    ++tokens_;
    if (is_shown) bytes_ += texts_.text_of(before_, token);
    before_ = is_shown ? token : -1;
    if (!texts_.is_text()) return pass(bytes_.size());
    const std::string_view rest = std::string_view(bytes_).substr(passed_);
    const size_t last = last_character(rest);
    const bool is_whole = last == rest.size() || character_size(rest.substr(last)) > 0;
    pass(passed_ + (is_whole ? rest.size() : last));
  }
  size_t tokens() const { return tokens_; }
  std::string end() {
    pass(bytes_.size());
    return texts_.is_text() ? printable(bytes_) : bytes_;
  }

 private:
  void pass(size_t end) {
    const std::string_view part = std::string_view(bytes_).substr(passed_, end - passed_);
    passed_ = end;
    if (see_ && !part.empty()) see_(texts_.is_text() ? printable(part) : std::string(part));
  }

  const TokenText& texts_;
  const SeeText& see_;
  std::string bytes_;
  size_t passed_ = 0, tokens_ = 0;
  int64_t before_ = -1;
};

}  // namespace

std::string printable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto [size, is_whole] = first_character(bytes);
    const auto first = static_cast<unsigned char>(bytes[0]);
    const bool control = size == 1 && (first < 0x20 || first == 0x7F);
    // U+0080 to U+009F are control characters too.
    const bool high_control =
        size == 2 && first == 0xC2 && static_cast<unsigned char>(bytes[1]) < 0xA0;
    const bool plain = is_whole && !high_control && (!control || first == '\n' || first == '\t');
    text += plain ? bytes.substr(0, size) : kReplacementCharacter;
    bytes.remove_prefix(size);
  }
  return text;
}

std::optional<std::string> write_sample(const RunState& run, const Parts& parts,
                                        const DataInfo& info, const SampleWays& ways) {
  const GenerateOptions& options = parts.plan.generate;
  if (!run.task.generate || options.tokens == 0) return std::nullopt;
  const TokenText texts(parts.plan, info);
  GrowingText text(texts, ways.see);
  GenerateRequest request{.prompt = texts.tokens_of(options.prompt),
                          .tokens = options.tokens,
                          .temperature = options.temperature,
                          .top_k = options.top_k,
                          .top_p = options.top_p,
                          .seed = static_cast<uint64_t>(options.seed),
                          .num_beams = options.num_beams,
                          .length_penalty = options.length_penalty,
                          .stop_token = options.stop_token,
                          .vocab = texts.vocab()};
  const int64_t context = run.task.context_length;
  if (ways.reads_prompt && context > 0 && std::ssize(request.prompt) > context) {
    throw ConfigError(fmt::format(
        "[generate] the prompt has {} tokens, and the model reads {} at once; shorten it",
        request.prompt.size(), context));
  }
  const bool hides_first = options.prompt.empty() && texts.hides_begin();
  const auto show_prompt = [&] {  // once the task has taken it
    for (size_t i = text.tokens(); i < request.prompt.size(); ++i) {
      text.add(request.prompt[i], /*is_shown=*/i > 0 || !hides_first);
    }
  };
  request.see = [&](int64_t token) {
    show_prompt();
    text.add(token);
  };
  const at::NoGradGuard no_grad;
  const EvalModeScope eval_mode(*run.task.module);
  const bool wants_average = parts.plan.average.evaluate;
  const AverageScope average(wants_average ? run.averages() : std::vector<WeightAverage*>());
  const WindowScope window(parts.plan.precision, parts.ranks->open_windows());
  const AutocastScope autocast(parts.device.type(), parts.plan.precision);
  const auto tokens = run.task.generate(request);
  show_prompt();
  // Beam search, and a task that does not report each token, give the tokens only here.
  while (text.tokens() < tokens.size()) text.add(tokens[text.tokens()]);
  return text.end();
}

}  // namespace tanren
