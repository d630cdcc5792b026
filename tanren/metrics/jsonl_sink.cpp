#include "tanren/metrics/jsonl_sink.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/metrics/json_line.h"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace tanren {

namespace {

class JsonFormat final : public ReportFormat {
 public:
  explicit JsonFormat(std::string before_step) : before_step_(std::move(before_step)) {}
  void append(const StepReport& report, double, std::string& out) override {
    out += before_step_;
    before_step_.clear();
    out += json_line(report);
    out += '\n';
  }
  void append(const EvaluationReport& report, double, std::string& out) override {
    out += json_line(report);
    out += '\n';
  }

 private:
  std::string before_step_;  // lines that are written before the next step's
};

std::string failure(std::string_view what, const std::filesystem::path& file, int code) {
  return fmt::format(
      "[metrics] cannot {} {}: {}; free the disk or correct its rights, then resume the run "
      "folder",
      what, file.string(), std::strerror(code));
}

// The attempt that a line reports or belongs before; 0 for an evaluation or anything else.
int64_t attempt_of(std::string_view line) {
  for (const std::string_view start : {"{\"attempt\":", "{\"from_attempt\":"}) {
    if (!line.starts_with(start)) continue;
    int64_t attempt = 0;
    std::from_chars(line.data() + start.size(), line.data() + line.size(), attempt);
    return attempt;
  }
  return 0;
}

// Whether the file's last line lacks its line feed (pipes and devices are never torn).
bool is_torn(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return false;
  in.seekg(-1, std::ios::end);
  return in.get() != '\n';
}

// The last whole line of an attempt, read from the file's end; empty: there is none.
std::string last_attempt_line(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  const int64_t size = in ? static_cast<int64_t>(in.tellg()) : 0;
  for (int64_t read = int64_t{1} << 16;; read *= 4) {
    const int64_t begin = std::max<int64_t>(size - read, 0);
    std::string tail(static_cast<size_t>(std::max<int64_t>(size - begin, 0)), '\0');
    in.seekg(begin);
    in.read(tail.data(), static_cast<std::streamsize>(tail.size()));
    if (!in) return "";
    std::string_view lines(tail);
    lines = lines.substr(0, lines.rfind('\n') + 1);  // without a torn line
    while (!lines.empty()) {
      const size_t start = lines.substr(0, lines.size() - 1).rfind('\n') + 1;
      const bool is_whole = start > 0 || begin == 0;
      const std::string_view line = lines.substr(start, lines.size() - 1 - start);
      if (is_whole && line.starts_with("{\"attempt\":")) return std::string(line);
      lines = lines.substr(0, start);
    }
    if (begin == 0) return "";
  }
}

}  // namespace

std::unique_ptr<Sink> make_jsonl_sink(const std::filesystem::path& file,
                                      const std::vector<std::string>& before_step) {
  truncate_log(file, std::numeric_limits<int64_t>::max());
  std::string lines;
  for (const std::string& line : before_step) lines += line + "\n";
  return make_queued_sink(std::make_unique<AppendFile>(file),
                          std::make_unique<JsonFormat>(std::move(lines)), {});
}

std::unique_ptr<ReportFormat> make_json_format() { return std::make_unique<JsonFormat>(""); }

bool has_line_ending(const std::filesystem::path& file, const std::string& end) {
  std::ifstream in(file, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with(end)) return true;
  }
  return false;
}

std::optional<double> last_loss(const std::filesystem::path& file, int64_t attempt) {
  const std::string last = last_attempt_line(file);
  if (attempt_of(last) != attempt) return std::nullopt;  // the log was off, or is another run's
  const auto json = parse_json(last);
  if (!json.is_object() || !json.contains("loss") || !json["loss"].is_number()) return std::nullopt;
  return json["loss"].get<double>();
}

void truncate_log(const std::filesystem::path& file, int64_t attempt, bool keeps_evaluation) {
  std::error_code missing;
  if (!std::filesystem::is_regular_file(file, missing)) return;
  const bool all = attempt == std::numeric_limits<int64_t>::max();
  if (all && !is_torn(file)) return;
  std::ifstream in(file, std::ios::binary);
  if (!in) throw DiskError(failure("read", file, errno));
  int64_t keep = 0;
  std::string line;
  int64_t seen = 0;
  while (std::getline(in, line)) {
    const int64_t own = attempt_of(line);
    if (in.eof() || own > attempt) break;  // eof: the line has no line feed
    if (own == 0 && seen == attempt && !keeps_evaluation) break;
    seen = std::max(seen, own);
    keep += static_cast<int64_t>(line.size()) + 1;
  }
  in.close();
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) throw DiskError(failure("cut", file, errno));
  const bool cut = ::ftruncate(descriptor, keep) == 0 && ::fsync(descriptor) == 0;
  const int code = errno;
  ::close(descriptor);
  if (!cut) throw DiskError(failure("cut", file, code));
}

}  // namespace tanren
