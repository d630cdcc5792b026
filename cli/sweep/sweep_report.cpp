#include "cli/sweep/sweep_report.h"

#include "tanren/base/file.h"
#include "tanren/base/names.h"
#include "tanren/base/temporary.h"
#include "tanren/base/text.h"
#include "tanren/sweep/leaderboard.h"
#include "cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>

namespace tanren::cli {

namespace fs = std::filesystem;

namespace {

std::string trial_name(int64_t trial) { return fmt::format("trial {:04}", trial); }

// Removes a folder as a whole. If this is killed, the next start of the run sees the folder whole
// or not at all, because the rest has another name.
void remove_folder(const fs::path& folder) {
  const fs::path gone = folder.parent_path() / (".tmp-" + folder.filename().string() + "-unneeded");
  std::error_code none, error;
  fs::remove_all(gone, none);  // an earlier start was killed here
  fs::rename(folder, gone, error);
  fs::remove_all(error ? folder : gone, none);  // what cannot be removed stays
}

// Removes all files from which a run could resume or be evaluated.
void remove_state(const fs::path& folder) {
  std::error_code none;
  remove_folder(folder / "checkpoints");
  for (const char* file : {"model.safetensors", "model.tanren.safetensors"}) {
    fs::remove(folder / file, none);
  }
  remove_folder(folder / "quantized");
}

}  // namespace

SweepReport::SweepReport(const SweepPlace& place, const Study& study, bool quiet)
    : place_(place), study_(study), quiet_(quiet), time_(read_time(place)) {
  if (quiet || !stdout_is_terminal()) return;
  table_.emplace(std::cout, [] { return int64_t{terminal_size().ws_col}; });
}

void SweepReport::say(const std::string& line) {
  clear_table();
  if (!quiet_) std::cout << line << std::endl;  // a reader of a pipe sees it at once
}

std::optional<std::chrono::milliseconds> SweepReport::table_every() const {
  if (!table_) return std::nullopt;
  return LiveTable::kEvery;
}

void SweepReport::draw_table(const std::vector<LiveRun>& runs) {
  const winsize size = terminal_size();
  table_->draw(live_text(study_, runs, size.ws_row - 1, size.ws_col - 1), LiveTable::Clock::now());
}

void SweepReport::clear_table() {
  if (table_) table_->clear();
}

void SweepReport::begins(const std::string& name, const Trial& trial, int64_t step) {
  const std::string goal = trial.until > 0 ? fmt::format(" until step {}", trial.until) : "";
  const std::string alone = trial.alone ? ", alone" : "";
  const std::string values = join(trial.sets(), " ");
  if (trial.fork_of && step <= trial.fork_step) {
    return say(fmt::format("{}: from trial {:04} at step {}{}{}: {}", name, *trial.fork_of,
                           trial.fork_step, goal, alone, values));
  }
  const std::string from = step > 0 ? fmt::format("from step {}", step) : "begins";
  say(fmt::format("{}: {}{}{}{}", name, from, goal, alone, values.empty() ? "" : ": " + values));
}

void SweepReport::told(const Confirmed& end) {
  if (end.value) {
    return say(fmt::format("{}: {} {} at step {}", name_of(end.run), study_.options().metric,
                           shown(*end.value), end.step));
  }
  const std::string why = end.reason.empty() ? "" : ": " + end.reason;
  const bool waits = is_due(&end);  // it runs once more
  say(fmt::format("{}: {}{}", name_of(end.run), waits ? "waiting" : to_text(end.outcome), why));
}

void SweepReport::told(const Trial& trial) {
  const TrialRecord& record = study_.records()[static_cast<size_t>(trial.id)];
  if (record.value) {
    const std::string step = record.step > 0 ? fmt::format(" at step {}", record.step) : "";
    const bool is_best = study_.best() == &record;
    return say(fmt::format("{}: {} {}{}{}", trial_name(trial.id), study_.options().metric,
                           shown(*record.value), step, is_best ? ", the best so far" : ""));
  }
  say(fmt::format("{}: {}{}", trial_name(trial.id), state_text(study_, record),
                  record.reason.empty() ? "" : ": " + record.reason));
}

bool SweepReport::is_kept(const TrialRecord& record) const {
  if (record.state == TrialState::running || record.state == TrialState::waiting) return true;
  if (record.state == TrialState::paused && !study_.is_done()) return true;
  const auto& all = study_.records();
  return std::any_of(all.begin(), all.end(), [&](const TrialRecord& fork) {
    return fork.state == TrialState::running && fork.fork_of == record.id &&
           fork.begun == fork.fork_step;
  });
}

void SweepReport::keep_files() {
  // The files of an external scheduler belong to that program, and may be links to runs elsewhere.
  const bool is_external = study_.options().scheduler == "external";
  int64_t num_best = 0;
  for (const TrialRecord* record : ranked(study_)) {
    if (is_external || record->same_as || removed_.count(record->id) > 0) continue;
    if (record->value && num_best++ < place_.config.sweep.keep) continue;
    if (is_kept(*record)) continue;
    remove_state(place_.trial(record->id));
    removed_.insert(record->id);
  }
  for (const auto& ends = study_.confirmed(); num_removed_ < ends.size(); ++num_removed_) {
    const Confirmed& end = ends[num_removed_];
    if (!is_due(&end)) remove_state(place_.confirming(end.run));
  }
}

void SweepReport::link_best() const {
  const TrialRecord* best = study_.best();
  if (best == nullptr) return;
  const fs::path link = place_.folder / "best";
  const std::string target = (fs::path("trials") / place_.trial(best->id).filename()).string();
  std::error_code none;  // a file system without links has none
  if (fs::is_symlink(link, none) && fs::read_symlink(link, none) == target) return;
  const fs::path made = make_temporary(
      link, [&](const char* temporary) { return ::symlink(target.c_str(), temporary); });
  if (made.empty()) return;
  fs::rename(made, link, none);
  if (none) fs::remove(made, none);
}

SweepTime SweepReport::time() const {
  SweepTime time = time_;
  time.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  return time;
}

void SweepReport::write_page() const { cli::write_page(place_, study_, time()); }

void SweepReport::write_files(bool at_last) {
  const auto now = std::chrono::steady_clock::now();
  if (!at_last && now - written_ < std::chrono::seconds(1)) return;
  link_best();
  write_file(place_.folder / "leaderboard.json", leaderboard_json(study_));
  write_file(place_.folder / "leaderboard.txt", leaderboard_text(study_, study_.records().size()));
  write_time(place_, time());
  written_ = std::chrono::steady_clock::now();
}

}  // namespace tanren::cli
