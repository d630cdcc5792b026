#include "tanren/base/log.h"

#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

namespace tanren {

namespace {
struct Place {
  std::mutex mutex;
  LogSink sink;
};
Place& place() {
  static Place the_place;  // log() may be called by any thread and by code without a run
  return the_place;
}
}  // namespace

LogSink set_log_sink(LogSink sink) {
  const std::lock_guard<std::mutex> lock(place().mutex);
  return std::exchange(place().sink, std::move(sink));
}

void log(std::string_view line) {
  const std::lock_guard<std::mutex> lock(place().mutex);
  if (place().sink) {
    place().sink(line);
  } else {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  }
}

}  // namespace tanren
