#include "tanren/metrics/event_cut.h"

#include "tanren/base/error.h"
#include "tanren/metrics/crc32c.h"

#include <protozero/exception.hpp>
#include <protozero/pbf_reader.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxMessage = uint64_t{1} << 30;  // a greater length is a broken record

uint64_t little_endian(const char* bytes, int count) {
  uint64_t number = 0;
  for (int i = 0; i < count; ++i) {
    number |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return number;
}

// Reads the next record's message; returns false at the end of the sound records.
bool next_record(std::istream& in, std::string& message) {
  char head[12], crc[4];
  if (!in.read(head, sizeof head)) return false;
  if (masked_crc32c({head, 8}) != little_endian(head + 8, 4)) return false;
  const uint64_t length = little_endian(head, 8);
  if (length > kMaxMessage) return false;
  message.resize(length);
  if (!in.read(message.data(), static_cast<std::streamsize>(length))) return false;
  return in.read(crc, sizeof crc) && masked_crc32c(message) == little_endian(crc, 4);
}

struct Facts {
  int64_t step = 0;
  bool is_version = false;
  bool is_start = false;
  bool is_evaluation = false;  // has a value of an evaluation
};

// Whether the value's tag is that of an evaluation.
bool is_of_evaluation(protozero::pbf_reader value) {
  while (value.next()) {
    if (value.tag() == 1) return value.get_string().starts_with("evaluate/");
    value.skip();
  }
  return false;
}

Facts facts_of(const std::string& message) {
  Facts facts;
  try {
    protozero::pbf_reader event(message);
    while (event.next()) {
      switch (event.tag()) {
        case 2: facts.step = event.get_int64(); break;
        case 3:
          facts.is_version = true;
          event.skip();
          break;
        case 7: {
          auto session = event.get_message();
          facts.is_start = session.next(1) && session.get_enum() == 1;
          break;
        }
        case 5: {
          auto summary = event.get_message();
          while (summary.next(1)) facts.is_evaluation |= is_of_evaluation(summary.get_message());
          break;
        }
        default: event.skip();
      }
    }
  } catch (const protozero::exception&) {
    return {};  // its checksum is right, so it is another program's
  }
  return facts;
}

// How many bytes of a file stay; nullopt if the file is another program's.
std::optional<uint64_t> bytes_to_keep(const fs::path& file, int64_t step, bool repeats_evaluation) {
  std::ifstream in(file, std::ios::binary);
  std::string message;
  if (!next_record(in, message) || !facts_of(message).is_version) return std::nullopt;
  if (!next_record(in, message)) return 0;  // ended before its session start
  const Facts start = facts_of(message);
  if (!start.is_start) return std::nullopt;
  if (start.step > step + 1) return 0;
  bool has_evaluation = false;  // of `step`, made at the start of the session
  auto keep = static_cast<uint64_t>(in.tellg());
  while (next_record(in, message)) {
    const Facts facts = facts_of(message);
    if (facts.step > step) break;
    // What follows belongs to the same evaluation or to later steps.
    if (repeats_evaluation && facts.is_evaluation && facts.step == step) break;
    has_evaluation |= facts.is_evaluation;
    keep += message.size() + 16;
  }
  return start.step > step && !has_evaluation ? 0 : keep;
}

}  // namespace

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().rfind("events.out.tfevents.", 0) == 0) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

void cut_events(const fs::path& folder, int64_t step, bool repeats_evaluation) {
  for (const auto& file : event_files(folder)) {
    const auto keep = bytes_to_keep(file, step, repeats_evaluation);
    std::error_code error;
    if (!keep || fs::file_size(file, error) == *keep) continue;
    const bool cut = *keep == 0 ? fs::remove(file, error)
                                : ::truncate(file.c_str(), static_cast<off_t>(*keep)) == 0;
    if (!cut) {
      throw RunError("[metrics] cannot cut " + file.string() + " (" +
                     (error ? error.message() : std::string(std::strerror(errno))) +
                     "); correct its rights");
    }
  }
}

}  // namespace tanren
