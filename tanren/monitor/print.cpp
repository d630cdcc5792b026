#include "tanren/monitor/print.h"

#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <cmath>
#include <ctime>

namespace tanren {

namespace {

constexpr int64_t kFolderColumns = 36;

std::string number(double value, int digits = 4) { return short_text(value, digits); }

std::string number_or_dash(const std::optional<double>& value, int digits = 4) {
  return value ? number(*value, digits) : "-";
}

// A rate: whole above 100, three digits below.
std::string rate_text(double rate) {
  if (rate <= 0) return "-";
  return rate >= 100 ? to_text(std::llround(rate)) : number(rate, 3);
}

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{} %", std::llround(*share * 100)) : "-";
}

std::string bytes(const std::optional<int64_t>& count) {
  return count ? bytes_text(static_cast<double>(*count)) : "-";
}

std::string clock_text(double unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  char buffer[16];
  std::strftime(buffer, sizeof buffer, "%H:%M:%S", &parts);
  return buffer;
}

// Keeps the end of a path: it distinguishes the runs.
std::string folder_text(const RunLook& run) {
  std::string text = one_line(run.status.folder.string());
  if (display_width(text) <= kFolderColumns) return text;
  size_t start = 0;
  while (display_width(std::string_view(text).substr(start)) > kFolderColumns - 1) {
    ++start;
    while ((static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) ++start;
  }
  return "…" + text.substr(start);
}

using Row = std::vector<std::string>;

// Columns two spaces apart, the first flush left, the others flush right.
std::string table_text(const std::vector<Row>& rows) {
  std::vector<int64_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = padded(row.front(), widths.front());
    for (size_t i = 1; i < row.size(); ++i) {
      const auto blanks = static_cast<size_t>(widths[i] - display_width(row[i]));
      line += "  " + std::string(blanks, ' ') + row[i];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string cpu_text(const Look& look) {
  const MachineState& machine = look.machine;
  std::string text = fmt::format("{} of {} cores", percent(look.busy_share), machine.cores);
  if (machine.allowed_cores < static_cast<double>(machine.cores)) {
    text += ", " + number(machine.allowed_cores) + " allowed here";
    if (look.cgroup_busy_cores) text += " (" + number(*look.cgroup_busy_cores, 2) + " used)";
  }
  text += "  load";
  for (const double load : machine.load) text += " " + number(load);
  return text;
}

std::string memory_text(const MachineState& machine) {
  std::string text = bytes(machine.available_bytes) + " available of " + bytes(machine.total_bytes);
  if (machine.cgroup_limit_bytes) {
    text +=
        "  cgroup " + bytes(machine.cgroup_used_bytes) + " of " + bytes(machine.cgroup_limit_bytes);
    if (machine.cgroup_cache_bytes)
      text += " (file cache " + bytes(machine.cgroup_cache_bytes) + ")";
  }
  text += "  swap ";
  if (machine.swap_total_bytes == 0) return text + "none";
  return text + bytes(machine.swap_total_bytes - machine.swap_free_bytes) + " of " +
         bytes(machine.swap_total_bytes);
}

std::string process_name(const Look& look, int64_t pid) {
  const auto found = look.process_names.find(pid);
  return found == look.process_names.end() ? "?" : one_line(found->second);
}

std::string watts_text(const DeviceState& device) {
  std::string text = number_or_dash(device.watts, 3);
  if (device.watts_limit) text += " of " + number(*device.watts_limit, 3);
  return text;
}

std::string devices_text(const Look& look) {
  if (look.devices.empty()) return "devices  none: " + look.why_no_devices + "\n";
  std::vector<Row> rows{
      {"device", "name", "used", "free", "total", "busy", "memory busy", "°C", "W"}};
  std::string below;
  for (const auto& device : look.devices) {
    rows.push_back({to_text(device.index), device.name.empty() ? "-" : device.name,
                    bytes(device.used_bytes), bytes(device.free_bytes), bytes(device.total_bytes),
                    percent(device.busy_share), percent(device.memory_busy_share),
                    number_or_dash(device.celsius, 3), watts_text(device)});
    if (!device.problem.empty()) {
      below += fmt::format("device {}: {}\n", device.index, device.problem);
    }
  }
  std::vector<Row> processes{{"device", "pid", "program", "memory"}};
  for (const auto& device : look.devices) {
    for (const auto& process : device.processes) {
      processes.push_back({to_text(device.index), to_text(process.pid),
                           process_name(look, process.pid), bytes(process.bytes)});
    }
  }
  std::string text = table_text(rows) + below;
  if (processes.size() > 1) text += "\n" + table_text(processes);
  return text + "devices " + kDeviceOrder + "\n";
}

std::string step_text(const RunStatus& run) {
  std::string text = run.log ? to_text(run.log->step) : "-";
  if (run.total_steps > 0) text += fmt::format("/{}", run.total_steps);
  return text;
}

std::string left_text(const RunStatus& run) {
  const auto left = run.is_starting() ? std::nullopt : run.seconds_left();
  return left ? seconds_text(*left) : "-";
}

// "0: 2.9 GiB", as the driver reports it.
std::string device_bytes_text(const RunLook& run) {
  std::string text;
  for (const auto& [index, count] : run.device_bytes) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", index, bytes(count));
  }
  return text.empty() ? "-" : text;
}

std::string evaluation_text(const LogTail& log) {
  if (!log.evaluation_step) return "";
  std::string text = fmt::format("evaluation at step {}:", *log.evaluation_step);
  for (const auto& [name, value] : log.evaluation)
    text += "  " + one_line(name) + " " + number(value);
  return text;
}

// Notable facts about runs, each a line under the table.
std::string remarks(const Look& look) {
  std::string text;
  for (const auto& run : look.runs) {
    const RunStatus& status = run.status;
    const std::string who = fmt::format("pid {}: ", status.process.pid);
    if (status.is_starting()) {
      text += who + "no step logged yet by this process, started " +
              seconds_text(status.process.age_seconds) + " ago\n";
      continue;
    }
    const LogTail& log = *status.log;
    if (log.verdict != "apply") {
      text += fmt::format("{}attempt {} {}: {}\n", who, log.attempt, one_line(log.verdict),
                          one_line(log.cause));
    }
    const std::string evaluation = evaluation_text(log);
    if (!evaluation.empty()) text += who + evaluation + "\n";
  }
  return text;
}

std::string runs_text(const Look& look) {
  if (look.runs.empty()) return "runs     none\n";
  // A narrow terminal cuts off the right side, so the most important columns are on the left.
  std::vector<Row> rows{{"run", "pid", "step", "loss", "samples/s", "left", "memory", "cpu", "lr",
                         "logged", "threads"}};
  if (!look.devices.empty()) rows.front().insert(rows.front().begin() + 7, "on devices");
  for (const auto& run : look.runs) {
    const RunStatus& status = run.status;
    const auto log = status.log.value_or(LogTail{});
    Row row{folder_text(run),
            to_text(status.process.pid),
            step_text(status),
            number_or_dash(log.loss),
            rate_text(log.samples_per_second),
            left_text(status),
            bytes(status.process.resident_bytes)};
    if (!look.devices.empty()) row.push_back(device_bytes_text(run));
    row.push_back(percent(run.busy_cores));
    row.push_back(number_or_dash(log.learning_rate, 3));
    row.push_back(status.log_age_seconds ? seconds_text(*status.log_age_seconds) + " ago" : "-");
    row.push_back(to_text(status.process.threads));
    rows.push_back(std::move(row));
  }
  return table_text(rows) + remarks(look);
}

std::string line_of(const DeviceState& device) {
  const std::string text = fmt::format("device {}  {}", device.index, device.name);
  if (!device.problem.empty()) return text + "  " + device.problem;
  return fmt::format("{}  {} of {}  busy {}  {} °C  {} W", text, bytes(device.used_bytes),
                     bytes(device.total_bytes), percent(device.busy_share),
                     number_or_dash(device.celsius, 3), watts_text(device));
}

std::string line_of(const RunLook& run) {
  const RunStatus& status = run.status;
  std::string text = fmt::format("run {}  pid {}  step {}", one_line(status.folder.string()),
                                 status.process.pid, step_text(status));
  if (status.log) {
    text += fmt::format("  loss {}  lr {}  {} samples/s  left {}", number_or_dash(status.log->loss),
                        number_or_dash(status.log->learning_rate, 3),
                        rate_text(status.log->samples_per_second), left_text(status));
  }
  text += "  " + bytes(status.process.resident_bytes) + "  cpu " + percent(run.busy_cores);
  return run.device_bytes.empty() ? text : text + "  device " + device_bytes_text(run);
}

}  // namespace

std::string look_text(const Look& look, int64_t width) {
  std::string all = fmt::format("cpu      {}\nmemory   {}\n\n{}\n{}", cpu_text(look),
                                memory_text(look.machine), devices_text(look), runs_text(look));
  if (width <= 0) return all;
  std::string text;
  std::string_view rest = all;
  while (!rest.empty()) text += cut_text(take_line(rest), width) + "\n";
  return text;
}

std::string look_lines(const Look& look) {
  const std::string time = clock_text(look.unix_seconds) + "  ";
  std::string text =
      fmt::format("{}cpu {}  memory {}\n", time, cpu_text(look), memory_text(look.machine));
  for (const auto& device : look.devices) text += time + line_of(device) + "\n";
  for (const auto& run : look.runs) text += time + line_of(run) + "\n";
  return text;
}

}  // namespace tanren
