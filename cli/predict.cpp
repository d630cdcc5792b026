#include "tanren/base/counted.h"
#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/predict/predict_file.h"
#include "cli/stop_signals.h"
#include "cli/verbs.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <string_view>

namespace tanren::cli {

namespace {

constexpr int kStoppedByUser = 130;

// A handler can only reach static storage.
std::atomic<bool> stops_predicting{false};
std::atomic<bool> hears_stops{false};    // predict_file checks stops_predicting
std::atomic<bool> tells_of_stops{true};  // of several ranks, only rank 0 prints it
Interrupts predict_interrupts;

// Ends the process before the first row is written. Only async-signal-safe calls here.
[[noreturn]] void end_before_rows() {
  constexpr std::string_view kNothing =
      "[predict] stopped by a signal before a row of this start; give the same command again\n";
  if (tells_of_stops.load()) {
    [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, kNothing.data(), kNothing.size());
  }
  ::_exit(kStoppedByUser);
}

void on_predict_signal(int signal) {
  if (!hears_stops.load()) end_before_rows();
  stops_predicting.store(true);
  if (!predict_interrupts.is_second(signal)) return;
  std::signal(SIGINT, SIG_DFL);
  ::raise(SIGINT);  // ends this process when the handler returns
}

void hear_predict_signals() {
  stops_predicting.store(false);
  hears_stops.store(false);
  tells_of_stops.store(rank_of_process() == 0);
  std::signal(SIGINT, on_predict_signal);
  std::signal(SIGTERM, on_predict_signal);
  if (!hang_up_is_ignored()) std::signal(SIGHUP, on_predict_signal);
  std::signal(SIGPIPE, SIG_IGN);
}

// Thrown when the reader of the rows is gone. The verb then ends quietly, as other filters do.
struct ReaderIsGone {};

void print_rows(std::string_view rows) {
  while (!rows.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, rows.data(), rows.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EPIPE) throw ReaderIsGone();
    if (written < 0) {
      throw DiskError(std::string("[predict] cannot write to standard output (") +
                      std::strerror(errno) + "); make room");
    }
    rows.remove_prefix(static_cast<size_t>(written));
  }
}

// To stderr where the rows themselves go to stdout.
void print_end_of_predictions(const PredictOutput& output) {
  std::ostream& to = output.out.empty() ? std::cerr : std::cout;
  if (output.stopped && output.rows == 0) {
    to << "stopped before the first row; nothing was written\n";
    return;
  }
  const bool has_samples = output.written > 0;  // each with a row for every token
  to << (output.out.empty() ? "standard output" : output.out.string()) << ": "
     << counted(has_samples ? output.written : output.rows, "row");
  if (has_samples) to << " of " << counted(output.rows, "sample");
  if (output.began_at > 0) {
    to << " (went on after " << (has_samples ? "sample " : "row ") << output.began_at << ")";
  }
  if (output.broken > 0) to << ", " << output.broken << " of them broken, without a prediction";
  if (!output.weights.empty()) to << ", by " << output.weights;
  to << ", " << seconds_text(output.seconds) << "\n";
  if (!output.stopped) return;
  to << (output.out.empty() ? "stopped\n" : "stopped; the same command goes on there\n");
}

}  // namespace

int predict(const Arguments& arguments, const Registry& registry) {
  hear_predict_signals();
  const PredictInput input{.model = arguments.file,
                           .source = arguments.target,
                           .out = arguments.out,
                           .replaces = arguments.force,
                           .sets = arguments.sets,
                           .stop = &stops_predicting,
                           .hears = [] { hears_stops.store(true); },
                           .print = print_rows};
  try {
    const PredictOutput output = predict_file(input, registry);
    const bool talks = output.is_first && !arguments.quiet;
    if (talks && (!output.out.empty() || output.stopped || output.broken > 0)) {
      print_end_of_predictions(output);
    }
    return output.stopped ? kStoppedByUser : 0;
  } catch (const ReaderIsGone&) {
    return 0;
  }
}

}  // namespace tanren::cli
