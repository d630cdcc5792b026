#include "tanren/comm/c10d_line.h"

#include "tanren/base/error.h"
#include "tanren/comm/cause.h"
#include "tanren/comm/run_detached.h"

#include <exception>
#include <system_error>
#include <utility>

namespace tanren {

namespace {

constexpr std::chrono::seconds kEndTimeout{5};

void call_end(const C10dLine::End& end) {
  try {
    end();
  } catch (const std::exception&) {
    // This engine has no abort. The other engines must be ended anyway.
  }
}

}  // namespace

C10dLine::C10dLine(std::unique_ptr<ControlChannel> control, int rank)
    : rank_(rank), control_(std::move(control)) {
  if (control_ == nullptr) return;
  control_->on_failure([this](const std::string& why) {
    set_why(why);
    end_all();
  });
}

C10dLine::~C10dLine() { close(false); }

C10dLine::Place C10dLine::add(End end) {
  const std::lock_guard lock(ends_mutex_);
  ends_.push_back({std::move(end)});
  if (!why().empty()) begin(ends_.back());
  return std::prev(ends_.end());
}

void C10dLine::remove(Place place) {
  std::future<bool> ending;
  {
    const std::lock_guard lock(ends_mutex_);
    ending = std::move(place->ending);
    ends_.erase(place);
  }
  if (ending.valid()) ending.wait_for(kEndTimeout);
}

void C10dLine::cancel(const std::string& why) {
  set_why(cause_text(rank_, why));
  if (control_ != nullptr) control_->fail(why);  // first, because end_all() breaks connections
  end_all();
}

void C10dLine::set_why(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!why_.empty()) return;
  why_ = why;
  ended_ = std::chrono::steady_clock::now();
}

std::string C10dLine::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

void C10dLine::check() const { check_after(std::chrono::milliseconds(-1)); }

void C10dLine::check_after(std::chrono::milliseconds time) const {
  const std::lock_guard lock(mutex_);
  if (why_.empty()) return;
  if (std::chrono::steady_clock::now() - ended_ > time) throw CommError(why_);
}

void C10dLine::close(bool failed) {
  if (control_ == nullptr) return;
  control_->on_failure(nullptr);
  if (failed) {
    control_->fail("it ends with an error of its own, which its own last lines say");
  } else if (!control_->failure()) {
    control_->leave();
  }
  control_.reset();
}

void C10dLine::end_all() {
  const std::lock_guard lock(ends_mutex_);
  for (Engine& engine : ends_) begin(engine);
}

void C10dLine::begin(Engine& engine) {
  if (engine.end == nullptr) return;
  const End end = std::exchange(engine.end, nullptr);
  try {
    engine.ending = run_detached([end] {
      call_end(end);
      return true;
    });
  } catch (const std::system_error&) {
    call_end(end);  // no thread could be started
  }
}

}  // namespace tanren
