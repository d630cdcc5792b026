#include "tanren/comm/world.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace tanren {

namespace {

constexpr int kLowestPort = 1024, kHighestPort = 65535;
// Derived ports lie above those that the system gives to clients.
constexpr uint32_t kFirstDerived = 61000, kNumDerived = 4000;

// The variables of a launcher: rank and size are always set by it.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* job;  // the same on all ranks, different for each job
};
const std::vector<Launcher> kLaunchers = {
    {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "TORCHELASTIC_RUN_ID"},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_PORT"},
    // Variables of the step that srun started. The variables of the job are also set in a shell
    // inside the job, which is one process.
    {"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
     "SLURM_JOB_ID"},
};

int number(const Environment& environment, const char* name, int low, int high) {
  const std::string text = environment(name).value_or("");
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // "4(x2)" of Slurm: 4 on each of 2 machines.
  const bool ends = stop == text.data() + text.size() || *stop == '(' || *stop == ',';
  if (error == std::errc() && ends && value >= low && value <= high) return value;
  throw ConfigError(
      fmt::format("[comm] the environment has {} = \"{}\", which should be a number from {} to {}; "
                  "unset it, or start through the launcher",
                  name, text, low, high));
}

uint32_t hash_of(const std::string& text) {  // FNV-1a
  uint32_t hash = 2166136261U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

void find_rendezvous_place(const Environment& environment, const Launcher& launcher, World& world) {
  if (const auto host = environment("MASTER_ADDR")) {
    world.host = *host;
  } else if (const auto node = environment("SLURM_LAUNCH_NODE_IPADDR")) {
    world.host = *node;
  } else if (world.local_size < world.size) {
    throw ConfigError(
        fmt::format("[comm] {} ranks on several machines ({} here) and no MASTER_ADDR; set it to "
                    "the address of the machine of rank 0",
                    world.size, world.local_size));
  }
  if (environment("MASTER_PORT")) {
    world.port = number(environment, "MASTER_PORT", kLowestPort, kHighestPort);
    world.has_agent_store = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
    return;
  }
  const auto job = environment(launcher.job);
  if (!job) {
    throw ConfigError(
        fmt::format("[comm] by {} this is rank {} of {}, and there is no MASTER_PORT; set it to a "
                    "free port of {}",
                    launcher.rank, world.rank, world.size, world.host));
  }
  const std::string step = environment("SLURM_STEP_ID").value_or("");
  world.port = static_cast<int>(kFirstDerived + hash_of(*job + "/" + step) % kNumDerived);
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == 0) return std::nullopt;
    return std::string(value);
  };
}

World world_of(const Environment& environment, const std::string& rendezvous) {
  for (const Launcher& launcher : kLaunchers) {
    const bool has_rank = environment(launcher.rank).has_value();
    const bool has_size = environment(launcher.size).has_value();
    const bool is_rank_and_size = &launcher == kLaunchers.data();
    if (is_rank_and_size && has_rank != has_size) {
      throw ConfigError(fmt::format(
          "[comm] the environment has {} without {}; set both, or neither",
          has_rank ? launcher.rank : launcher.size, has_rank ? launcher.size : launcher.rank));
    }
    if (!has_rank || !has_size) continue;
    constexpr int kMostRanks = 1 << 20;
    World world;
    world.launcher = launcher.name;
    if (is_rank_and_size && environment(kOurLauncher)) world.launcher = "tanren launch";
    if (is_rank_and_size && environment("TORCHELASTIC_RUN_ID")) world.launcher = "torchrun";
    world.size = number(environment, launcher.size, 1, kMostRanks);
    world.rank = number(environment, launcher.rank, 0, world.size - 1);
    world.local_size = environment(launcher.local_size)
                           ? number(environment, launcher.local_size, 1, world.size)
                           : world.size;
    world.local_rank = environment(launcher.local_rank)
                           ? number(environment, launcher.local_rank, 0, world.local_size - 1)
                           : world.rank % world.local_size;
    if (world.size > 1 && rendezvous.empty()) find_rendezvous_place(environment, launcher, world);
    world.attempt = environment("TORCHELASTIC_RESTART_COUNT").value_or("");
    set_rendezvous(world, rendezvous);
    return world;
  }
  World alone;
  set_rendezvous(alone, rendezvous);  // throws if it is invalid
  return {};
}

void set_rendezvous(World& world, const std::string& rendezvous) {
  constexpr std::string_view kTcp = "tcp://", kFile = "file://";
  const auto refuse = [&](const char* why) {
    throw ConfigError(fmt::format(
        "[comm] the ranks cannot meet at \"{}\": {}; write tcp://host:port with rank 0's host and "
        "a free port of it, or file:///path of a new file that all machines see",
        rendezvous, why));
  };
  if (rendezvous.empty()) return;
  if (rendezvous.rfind(kFile, 0) == 0) {
    const std::string path = rendezvous.substr(kFile.size());
    if (path.size() < 2 || path.front() != '/' || path.back() == '/') {
      refuse("its path does not begin with /, or names no file");
    }
    world.file = path;
    world.port = 0;
  } else if (rendezvous.rfind(kTcp, 0) == 0) {
    const std::string rest = rendezvous.substr(kTcp.size());
    const size_t colon = rest.rfind(':');
    if (colon == std::string::npos || colon == 0) refuse("it names no host and port");
    std::string host = rest.substr(0, colon);
    const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (has_brackets) host = host.substr(1, host.size() - 2);
    if (!has_brackets && host.find_first_of(":/@ ") != std::string::npos) {
      refuse("its host is none; an IPv6 address stands in [ ]");
    }
    int port = 0;
    const char *first = rest.data() + colon + 1, *last = rest.data() + rest.size();
    const auto [stop, error] = std::from_chars(first, last, port);
    if (error != std::errc() || stop != last || port < kLowestPort || port > kHighestPort) {
      refuse("its port is no number from 1024 to 65535");
    }
    world.host = host;
    world.port = port;
    world.file.clear();
  } else {
    refuse("it begins with neither tcp:// nor file://");
  }
  world.has_agent_store = false;
}

std::string place_of(const World& world) {
  return world.file.empty() ? fmt::format("{}:{}", world.host, world.port) : world.file;
}

}  // namespace tanren
