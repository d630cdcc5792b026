#include "cli/sweep/live_table.h"

#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/monitor/log_tail.h"
#include "tanren/sweep/leaderboard.h"

#include <algorithm>

namespace tanren::cli {

namespace {

using LiveRow = std::vector<std::string>;

LiveRow row_of(const LiveRun& run) {
  const auto log = read_log_tail(run.folder / "log.jsonl");
  std::string step = log ? to_text(log->step) : "-";
  if (run.until > 0) step += fmt::format("/{}", run.until);
  return {run.name, step, log && log->loss ? short_text(*log->loss, 4) : "-", one_line(run.values)};
}

std::string totals_text(const Study& study) {
  std::string text = counts_text(study);
  const auto num_confirmed = study.confirmed().size();
  if (num_confirmed > 0) text += fmt::format("; {} confirming runs have ended", num_confirmed);
  const TrialRecord* best = study.best();
  if (best == nullptr) return text;
  return text + fmt::format("; best: trial {:04}, {} {}", best->id, study.options().metric,
                            short_text(*best->value, 6));
}

}  // namespace

std::string live_text(const Study& study, const std::vector<LiveRun>& runs, int64_t rows,
                      int64_t columns) {
  constexpr int64_t kOthers = 3;  // the header, the count of runs without room, the totals
  const auto shown = std::min(std::ssize(runs), std::max<int64_t>(0, rows - kOthers));
  std::vector<LiveRow> table = {{"", "step", "loss", "values"}};
  for (int64_t i = 0; i < shown; ++i) table.push_back(row_of(runs[static_cast<size_t>(i)]));
  std::vector<int64_t> widths(table.front().size());
  for (const LiveRow& row : table) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::vector<std::string> lines;
  for (const LiveRow& row : table) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += padded(row[i], widths[i]) + "  ";
    lines.push_back(std::move(line));
  }
  const auto others = std::ssize(runs) - shown;
  if (others > 0) lines.push_back(fmt::format("and {} more", others));
  lines.push_back(totals_text(study));
  const auto most = static_cast<size_t>(std::max<int64_t>(0, rows));
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<int64_t>(most));
  std::string text;
  for (const std::string& line : lines) {
    text += cut_text(line.substr(0, line.find_last_not_of(' ') + 1), columns) + "\n";
  }
  return text;
}

// A terminal that was made narrower folds lines into several rows.
std::string LiveTable::to_top() const {
  if (widths_.empty()) return "\r";
  const int64_t columns = std::max<int64_t>(1, columns_());
  int64_t rows = 0;
  for (const int64_t width : widths_) rows += std::max<int64_t>(1, (width + columns - 1) / columns);
  return fmt::format("\r\x1b[{}A", rows);
}

void LiveTable::draw(const std::string& text, Clock::time_point now) {
  std::string out = to_top();
  widths_.clear();
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = take_line(rest);
    widths_.push_back(display_width(line));
    out.append(line) += "\x1b[K\n";
  }
  out_ << out << "\x1b[J" << std::flush;  // clears the rest of a longer previous table
  drawn_at_ = now;
}

void LiveTable::clear() {
  if (!widths_.empty()) out_ << to_top() << "\x1b[J" << std::flush;
  widths_.clear();
}

}  // namespace tanren::cli
