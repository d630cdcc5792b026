// The library's own log lines go to one replaceable sink, stderr by default. The library never
// prints anywhere else.
#pragma once

#include <functional>
#include <string_view>

namespace tanren {

using LogSink = std::function<void(std::string_view)>;

// Replaces the sink (null restores stderr) and returns the previous one. Thread-safe.
LogSink set_log_sink(LogSink sink);
// Hands one line, without line feed, to the sink. Thread-safe.
void log(std::string_view line);

}  // namespace tanren
