#include "tanren/predict/window.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"
#include "tanren/data/single_thread.h"
#include "tanren/predict/batches.h"
#include "tanren/train/predict.h"
#include "tanren/train/prepared.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <string_view>
#include <utility>

namespace tanren {

namespace {

// Answers as bytes, from one rank to the others.
class Packer {
 public:
  template <typename T>
  void add(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void add(const std::vector<T>& values) {
    add(std::ssize(values));
    for (const T& value : values) add(value);
  }
  void add(const std::string& text) {
    add(std::ssize(text));
    bytes_ += text;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}
  bool at_end() const { return rest_.empty(); }
  template <typename T>
  void take(T& value) {
    need(sizeof value);
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
  }
  template <typename T>
  void take(std::vector<T>& values) {
    const auto size = static_cast<size_t>(count());
    need(size);  // each takes a byte or more
    values.resize(size);
    for (T& value : values) take(value);
  }
  void take(std::string& text) {
    const auto size = static_cast<size_t>(count());
    need(size);
    text.assign(rest_.substr(0, size));
    rest_.remove_prefix(size);
  }

 private:
  std::ptrdiff_t count() {
    std::ptrdiff_t count = 0;
    take(count);
    return count;
  }
  void need(size_t bytes) const {
    if (bytes <= rest_.size()) return;
    throw CommError(
        "[predict] the answers of a rank are cut off; start every rank with the same "
        "program");
  }
  std::string_view rest_;
};

void pack(Packer& packer, int64_t row, const Answer& answer, const std::string& broken) {
  packer.add(row);
  packer.add(broken);
  packer.add(answer.label);
  packer.add(answer.score);
  packer.add(answer.scores);
  packer.add(answer.tokens);
}

}  // namespace

WindowPredictor::WindowPredictor(const RunState& run, const Parts& parts, const Encoder& encoder,
                                 AnswerForm form, int64_t batch, int64_t most)
    : run_(run),
      parts_(parts),
      encoder_(encoder),
      form_(form),
      batch_(batch),
      most_(std::min(batch, most)) {}

void WindowPredictor::forward(const Batch& host, WindowAnswers& window) {
  const Batch batch = prepared(host, run_.task, parts_);
  const auto* row = batch.ids.const_data_ptr<int64_t>();
  for (int64_t begin = 0; begin < batch.size();) {
    const int64_t end = std::min(begin + most_, batch.size());
    const Batch part = end - begin == batch.size() ? batch : batch.slice(begin, end);
    Answers answers(form_, "predict");
    const auto take = [&](const Prediction& prediction) { answers.add(prediction); };
    if (const auto shortage = tanren::predict(run_, parts_, part, take, Taking::in_attempt)) {
      most_ = smaller(part.size(), "samples", "evaluate.batch", *shortage, parts_,
                      run_.task.facts.least_samples);
      continue;
    }
    auto some = answers.take(part.size());
    for (int64_t i = begin; i < end; ++i) {
      const auto place = static_cast<size_t>(row[i]);
      Answer& answer = some[static_cast<size_t>(i - begin)];
      if (answer.has_nan) {
        window.broken[place] = kNanOutputs;
      } else {
        window.answers[place] = std::move(answer);
      }
    }
    begin = end;
  }
}

int64_t WindowPredictor::width(const Batch& one) {
  Answers answers(form_, "predict");
  const auto take = [&](const Prediction& prediction) { answers.add(prediction); };
  const Batch batch = prepared(one, run_.task, parts_);
  if (const auto shortage = tanren::predict(run_, parts_, batch, take, Taking::in_attempt)) {
    most_ = smaller(1, "samples", "evaluate.batch", *shortage, parts_);  // which throws
  }
  return std::ssize(answers.take(1).front().scores);
}

WindowAnswers WindowPredictor::predict(std::vector<Sample> samples, bool may_stop) {
  const EncodedSamples encoded = encoder_.encode(std::move(samples));
  WindowAnswers window;
  window.broken = encoded.broken;
  window.cut = encoded.texts.cut;
  window.answers.resize(window.broken.size());
  std::vector<int64_t> sound;
  for (int64_t i = 0; i < std::ssize(window.broken); ++i) {
    if (window.broken[static_cast<size_t>(i)].empty()) sound.push_back(i);
  }
  const auto batches = batches_of(encoded, sound, batch_);
  const auto rank = static_cast<size_t>(parts_.ranks->data().rank());
  const auto ranks = static_cast<size_t>(parts_.ranks->data().size());
  const auto make = [&](size_t i) {
    const bool aside = is_slow_;
    return std::async(aside ? std::launch::async : std::launch::deferred, [&, i, aside] {
      if (aside) stay_single_threaded();
      const at::NoGradGuard no_grad;
      const MustSucceedScope must_succeed;
      const MemoryScope memory(MemoryKind::batches);
      return encoder_.batch(encoded, batches[i], window.broken);
    });
  };
  std::future<Batch> next;
  if (rank < batches.size()) next = make(rank);
  for (size_t i = rank; i < batches.size() && !window.stopped; i += ranks) {
    const auto start = std::chrono::steady_clock::now();
    const Batch batch = next.get();
    constexpr auto kWorthAThread = std::chrono::milliseconds(1);
    is_slow_ |= std::chrono::steady_clock::now() - start > kWorthAThread;
    if (i + ranks < batches.size()) next = make(i + ranks);
    if (batch.size() > 0) forward(batch, window);
    window.stopped = may_stop && i + ranks < batches.size() && parts_.stop_requested();
  }
  next = {};  // waits for a batch that is being made
  if (!parts_.ranks->world().alone()) share(batches, window);
  return window;
}

void WindowPredictor::share(const std::vector<std::vector<int64_t>>& batches,
                            WindowAnswers& window) const {
  const auto rank = static_cast<size_t>(parts_.ranks->data().rank());
  const auto ranks = static_cast<size_t>(parts_.ranks->data().size());
  Packer packer;
  packer.add(int64_t{window.stopped ? 1 : 0});
  for (size_t i = rank; i < batches.size() && !window.stopped; i += ranks) {
    for (const int64_t row : batches[i]) {
      const auto place = static_cast<size_t>(row);
      pack(packer, row, window.answers[place], window.broken[place]);
    }
  }
  const auto all = gather_texts(parts_.ranks->world().communicator(), packer.bytes());
  for (const std::string& bytes : all) {
    Unpacker unpacker(bytes);
    int64_t stopped = 0;
    unpacker.take(stopped);
    window.stopped |= stopped != 0;
    while (!unpacker.at_end()) {
      int64_t row = 0;
      unpacker.take(row);
      if (row < 0 || row >= std::ssize(window.answers)) {
        throw CommError(
            fmt::format("[predict] a rank answers row {} of {}; give every rank the "
                        "same rows",
                        row, window.answers.size()));
      }
      const auto place = static_cast<size_t>(row);
      Answer& answer = window.answers[place];
      unpacker.take(window.broken[place]);
      unpacker.take(answer.label);
      unpacker.take(answer.score);
      unpacker.take(answer.scores);
      unpacker.take(answer.tokens);
    }
  }
}

}  // namespace tanren
