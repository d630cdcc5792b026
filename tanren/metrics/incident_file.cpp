#include "tanren/metrics/incident_file.h"

#include "tanren/base/json_text.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"

#include <nlohmann/json.hpp>

#include <fstream>

namespace tanren {

namespace {

class IncidentFileSink final : public Sink {
 public:
  explicit IncidentFileSink(std::filesystem::path file) : file_(std::move(file)) {}

  void step(const StepReport&) override {}

  void incident(const Incident& incident) override {
    std::ofstream out(file_, std::ios::app);
    out << incident_json(incident) << "\n" << std::flush;
    if (out || told_) return;
    log("[metrics] cannot write " + file_.string() + "; the run goes on");
    told_ = true;
  }

 private:
  std::filesystem::path file_;
  bool told_ = false;
};

}  // namespace

std::string incident_json(const Incident& incident) {
  nlohmann::ordered_json json;
  json["attempt"] = incident.attempt;
  json["step"] = incident.step;
  if (!incident.operation.empty()) json["operation"] = incident.operation;
  if (!incident.block.empty()) json["block"] = incident.block;
  json["in_backward"] = incident.in_backward;
  if (incident.bytes > 0) json["bytes"] = incident.bytes;
  json["message"] = incident.message;
  json["microbatch"] = incident.microbatch;
  json["next_microbatch"] = incident.next_microbatch;
  json["global_batch"] = incident.global_batch;
  json["shapes"] = nlohmann::ordered_json::object();
  for (const auto& [name, shape] : incident.shapes) json["shapes"][name] = shape;
  if (incident.limit_bytes > 0) json["limit_bytes"] = incident.limit_bytes;
  if (!incident.owners.empty()) {
    for (const auto& [kind, bytes] : incident.owners) json["owners"][kind] = bytes;
  }
  if (!incident.recent_peaks.empty()) json["recent_peaks"] = incident.recent_peaks;
  return json_text(json);
}

std::string incident_text(const Incident& incident) {
  std::string text = "out of memory";
  if (!incident.block.empty()) text += " at " + incident.block;
  if (!incident.operation.empty()) {
    text += " (" + incident.operation + (incident.in_backward ? ", backward)" : ")");
  } else if (incident.in_backward) {
    text += " (backward)";
  }
  text += fmt::format(": microbatch {}", incident.microbatch);
  text += incident.next_microbatch == incident.microbatch
              ? " once more with the cache freed"
              : fmt::format(" → {}", incident.next_microbatch);
  return fmt::format("{}, global batch still {}", text, incident.global_batch);
}

std::unique_ptr<Sink> make_incident_file_sink(const std::filesystem::path& file) {
  return std::make_unique<IncidentFileSink>(file);
}

}  // namespace tanren
