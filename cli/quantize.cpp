#include "tanren/post_training/quantize_file.h"
#include "cli/stop_signals.h"
#include "cli/verbs.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <string_view>

namespace tanren::cli {

namespace {

constexpr int kQuantizeStopped = 130;

// A handler can only reach static storage.
std::atomic<bool> writes_results{false};
std::atomic<bool> ends_after_results{false};
Interrupts quantize_interrupts;

// Only async-signal-safe calls here.
void on_quantize_signal(int signal) {
  if (!writes_results.load()) {
    constexpr std::string_view kNothing =
        "[quantize] stopped by a signal; nothing is written; give the same command again\n";
    [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, kNothing.data(), kNothing.size());
    ::_exit(kQuantizeStopped);
  }
  ends_after_results.store(true);
  if (!quantize_interrupts.is_second(signal)) return;
  std::signal(SIGINT, SIG_DFL);
  ::raise(SIGINT);  // ends this process when the handler returns
}

void hear_quantize_signals() {
  writes_results.store(false);
  ends_after_results.store(false);
  std::signal(SIGINT, on_quantize_signal);
  std::signal(SIGTERM, on_quantize_signal);
  if (!hang_up_is_ignored()) std::signal(SIGHUP, on_quantize_signal);
}

}  // namespace

int quantize(const Arguments& arguments, const Registry& registry) {
  hear_quantize_signals();
  const QuantizeReport report = quantize_file({.model = arguments.file,
                                               .data = arguments.target,
                                               .out = arguments.out,
                                               .replaces = arguments.force,
                                               .sets = arguments.sets,
                                               .writes = [] { writes_results.store(true); }},
                                              registry);
  if (arguments.json) {
    std::cout << quantize_json_report(report) << "\n";
  } else if (!arguments.quiet) {
    std::cout << quantize_text_report(report);
  }
  if (ends_after_results.load()) return kQuantizeStopped;
  return report.written.empty() ? 1 : 0;  // the report says why
}

}  // namespace tanren::cli
