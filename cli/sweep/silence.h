// Drops the library's log lines while an object of this class exists. Reading a config logs which
// keys have no effect beside others, and a sweep reads its config many times. Used by the verb
// sweep.
#pragma once

#include "tanren/base/log.h"

#include <string_view>

namespace tanren::cli {

class Silence {
 public:
  Silence() : before_(set_log_sink([](std::string_view) {})) {}
  ~Silence() { set_log_sink(before_); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  LogSink before_;
};

}  // namespace tanren::cli
