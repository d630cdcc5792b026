#include "tanren/monitor/print.h"

#include "tanren/base/json_text.h"

#include <nlohmann/json.hpp>

namespace tanren {

namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json cpu_json(const Look& look) {
  return {{"busy_share", or_null(look.busy_share)},
          {"cores", look.machine.cores},
          {"allowed_cores", look.machine.allowed_cores},
          {"cgroup_busy_cores", or_null(look.cgroup_busy_cores)},
          {"load", look.machine.load}};
}

Json memory_json(const MachineState& machine) {
  return {{"total_bytes", machine.total_bytes},
          {"available_bytes", machine.available_bytes},
          {"cgroup_limit_bytes", or_null(machine.cgroup_limit_bytes)},
          {"cgroup_used_bytes", or_null(machine.cgroup_used_bytes)},
          {"cgroup_cache_bytes", or_null(machine.cgroup_cache_bytes)},
          {"swap_total_bytes", machine.swap_total_bytes},
          {"swap_free_bytes", machine.swap_free_bytes}};
}

Json device_json(const DeviceState& device, const std::map<int64_t, std::string>& names) {
  Json json{{"index", device.index},
            {"name", text_or_null(device.name)},
            {"uuid", text_or_null(device.uuid)},
            {"pci_bus", text_or_null(device.pci_bus)},
            {"total_bytes", or_null(device.total_bytes)},
            {"used_bytes", or_null(device.used_bytes)},
            {"free_bytes", or_null(device.free_bytes)},
            {"reserved_bytes", or_null(device.reserved_bytes)},
            {"busy_share", or_null(device.busy_share)},
            {"memory_busy_share", or_null(device.memory_busy_share)},
            {"celsius", or_null(device.celsius)},
            {"watts", or_null(device.watts)},
            {"watts_limit", or_null(device.watts_limit)},
            {"problem", text_or_null(device.problem)}};
  json["processes"] = Json::array();
  for (const auto& process : device.processes) {
    const auto name = names.find(process.pid);
    json["processes"].push_back({{"pid", process.pid},
                                 {"name", name == names.end() ? Json(nullptr) : Json(name->second)},
                                 {"bytes", or_null(process.bytes)}});
  }
  return json;
}

Json log_json(const RunStatus& run) {
  if (!run.log) return nullptr;
  const LogTail& log = *run.log;
  Json json{{"attempt", log.attempt},
            {"step", log.step},
            {"epoch", log.epoch},
            {"loss", or_null(log.loss)},
            {"learning_rate", or_null(log.learning_rate)},
            {"grad_norm", or_null(log.grad_norm)},
            {"verdict", log.verdict},
            {"cause", log.cause},
            {"samples_per_second", log.samples_per_second},
            {"tokens_per_second", log.tokens_per_second},
            {"seconds_per_step", log.seconds_per_step},
            {"wait_share", log.wait_share},
            {"peak_memory_bytes", log.memory_bytes}};
  if (log.evaluation_step) {
    json["evaluation"] = Json::object();
    for (const auto& [name, value] : log.evaluation) json["evaluation"][name] = value;
    json["evaluation_step"] = *log.evaluation_step;
  }
  return json;
}

Json run_json(const RunLook& run) {
  const RunStatus& status = run.status;
  const ProcessState& process = status.process;
  Json json{{"folder", status.folder.string()},
            {"pid", process.pid},
            {"program", process.name},
            {"age_seconds", process.age_seconds},
            {"total_steps", status.total_steps > 0 ? Json(status.total_steps) : Json(nullptr)},
            {"seconds_left", or_null(status.seconds_left())},
            {"is_starting", status.is_starting()},
            {"log_age_seconds", or_null(status.log_age_seconds)},
            {"log", log_json(status)},
            {"resident_bytes", process.resident_bytes},
            {"threads", process.threads},
            {"busy_cores", or_null(run.busy_cores)}};
  json["devices"] = Json::array();
  for (const auto& [index, bytes] : run.device_bytes) {
    json["devices"].push_back({{"index", index}, {"bytes", or_null(bytes)}});
  }
  return json;
}

}  // namespace

std::string look_json(const Look& look) {
  Json json{{"unix_seconds", look.unix_seconds},
            {"interval_seconds", look.interval_seconds},
            {"cpu", cpu_json(look)},
            {"memory", memory_json(look.machine)},
            {"driver", text_or_null(look.driver)},
            {"device_order", kDeviceOrder},
            {"why_no_devices", text_or_null(look.why_no_devices)}};
  json["devices"] = Json::array();
  for (const auto& device : look.devices) {
    json["devices"].push_back(device_json(device, look.process_names));
  }
  json["runs"] = Json::array();
  for (const auto& run : look.runs) json["runs"].push_back(run_json(run));
  // A path may hold bytes that are invalid UTF-8.
  return json_text(json);
}

}  // namespace tanren
