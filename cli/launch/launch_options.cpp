#include "cli/launch/launch_options.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/comm/sockets.h"
#include "tanren/comm/world.h"
#include "cli/launch/child_processes.h"
#include "cli/verb_list.h"

#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <sstream>
#include <string_view>
#include <system_error>

namespace tanren::cli {

namespace fs = std::filesystem;

namespace {

// Ports above those that the system gives to clients, so that no client takes the port before rank
// 0 does.
constexpr int kFirstFreePort = 61000, kNumFreePorts = 4000;
constexpr int kLowestMasterPort = 1024, kHighestMasterPort = 65535;
constexpr int kMostNodes = 1024;

int number_of(const std::string& option, const std::string& text, int low, int high) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && stop == text.data() + text.size() && value >= low && value <= high) {
    return value;
  }
  throw ConfigError(
      fmt::format("[launch] {} is \"{}\"; give a number from {} to {}", option, text, low, high));
}

// Whether rank 0 could listen on this port, on all addresses of this machine; else errno has the
// reason.
bool can_listen(int port) { return static_cast<bool>(listener_on_all_addresses(port)); }

int free_port() {
  const int start = static_cast<int>(std::random_device()() % kNumFreePorts);
  for (int i = 0; i < kNumFreePorts; ++i) {
    const int port = kFirstFreePort + (start + i) % kNumFreePorts;
    if (can_listen(port)) return port;
  }
  throw RunError("[launch] none of the ports 61000 to 64999 is free; name one with --master");
}

void read_master(const std::string& master, LaunchOptions& options) {
  const size_t colon = master.rfind(':');
  std::string host = master.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) {
    throw ConfigError("[launch] --master is \"" + master +
                      "\"; give HOST:PORT, an address of node 0 and a free port there");
  }
  const std::string port = master.substr(colon + 1);
  options.host = host;
  options.port =
      number_of("the port of --master " + master, port, kLowestMasterPort, kHighestMasterPort);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    throw ConfigError("[launch] --master " + master + ": the host is not known here (" +
                      ::gai_strerror(error) + "); give an address of node 0");
  }
  ::freeaddrinfo(found);
  if (options.node_rank == 0 && !can_listen(options.port)) {
    throw ConfigError(fmt::format(
        "[launch] --master {}: port {} of this machine: {}; name a free one, the same on all nodes",
        master, port, std::strerror(errno)));
  }
}

// ConfigError if another launcher (torchrun, srun, mpirun) already starts the ranks. With --nodes,
// srun and mpirun may start one `tanren launch` per machine.
void refuse_nesting(int nodes) {
  const auto environment = process_environment();
  const World world = world_of([&](const char* name) -> std::optional<std::string> {
    const std::string_view wanted = name;
    if (wanted == "MASTER_ADDR") return "127.0.0.1";  // the address is not used here
    if (wanted == "MASTER_PORT") return "29500";
    return environment(name);
  });
  if (world.launcher == "none") return;
  const bool torchrun = environment("RANK").has_value();
  if (!torchrun && (nodes > 1 || world.size == 1)) return;
  throw ConfigError(
      fmt::format("[launch] this process is rank {} of {} already, started by {}; give it the "
                  "command itself, without launch{}",
                  world.rank, world.size,
                  torchrun ? "a launcher that sets RANK and WORLD_SIZE" : world.launcher,
                  torchrun ? "" : ", or one launch a machine with --nodes"));
}

// Finds a program as a shell does: a name without a slash in PATH.
std::string found_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  // The colon at the end makes an empty last folder count.
  std::istringstream folders(std::string(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin") +
                             ":");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = (folder.empty() ? "." : folder) + "/" + name;
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0) return file;
  }
  throw ConfigError("[launch] " + name + " is in no folder of PATH; name the program's path, ./" +
                    name + " where it is here");
}

void check_program(const std::string& program) {
  const auto fail = [&](const std::string& what) {
    throw ConfigError("[launch] " + program + " " + what);
  };
  std::error_code error;
  const auto status = fs::status(program, error);
  if (!fs::exists(status)) fail("does not exist; name the program of the ranks behind --");
  if (!fs::is_regular_file(status)) fail("is no program; name a file that runs");
  if (::access(program.c_str(), X_OK) != 0) {
    fail("is not executable; chmod +x it, or name its interpreter first");
  }
}

void read_command(const Arguments& arguments, LaunchOptions& options) {
  const auto& launch = arguments.launch;
  const std::string advice = "tanren launch -n 4 run FILE, or -n 4 -- ./program";
  if (!launch.verb.empty() && launch.verb.front().rfind('-', 0) == 0) {
    throw ConfigError("[launch] unknown option " + launch.verb.front() +
                      "; options of launch are -n, --nodes, --node-rank, --master");
  }
  if (launch.verb.empty() == launch.program.empty()) {
    throw ConfigError("[launch] name a verb, or a program behind --" +
                      std::string(launch.verb.empty() ? "; " : ", and not both; ") + advice);
  }
  if (launch.verb.empty()) {
    options.program = found_program(launch.program.front());
    check_program(options.program);
    options.command = launch.program;
    return;
  }
  const auto verbs = verbs_on_ranks();
  if (std::find(verbs.begin(), verbs.end(), launch.verb.front()) == verbs.end()) {
    throw ConfigError("[launch] \"" + launch.verb.front() +
                      "\" is no verb that runs on ranks; those are " + join(verbs) +
                      " (a program of your own stands behind --)");
  }
  options.program = fs::read_symlink("/proc/self/exe");
  options.is_verb = true;
  options.command = {arguments.program};
  options.command.insert(options.command.end(), launch.verb.begin(), launch.verb.end());
}

}  // namespace

LaunchOptions launch_options(const Arguments& arguments) {
  const auto& launch = arguments.launch;
  LaunchOptions options;
  if (launch.ranks.empty()) {
    throw ConfigError("[launch] how many ranks? give -n N, those of this machine");
  }
  options.ranks = number_of("-n", launch.ranks, 1, kMostChildren);
  if (!launch.nodes.empty()) options.nodes = number_of("--nodes", launch.nodes, 1, kMostNodes);
  if (!launch.node_rank.empty()) {
    options.node_rank = number_of("--node-rank", launch.node_rank, 0, options.nodes - 1);
  } else if (options.nodes > 1) {
    throw ConfigError(fmt::format(
        "[launch] --nodes {} without --node-rank; say which of them this machine is, from 0 to {}",
        launch.nodes, options.nodes - 1));
  }
  refuse_nesting(options.nodes);
  read_command(arguments, options);
  if (!launch.master.empty()) {
    read_master(launch.master, options);
  } else if (options.nodes > 1) {
    throw ConfigError("[launch] --nodes " + launch.nodes + " without --master; give HOST:PORT, " +
                      "an address of node 0 and a free port there, the same on all nodes");
  } else {
    options.host = "127.0.0.1";
    options.port = free_port();
  }
  return options;
}

std::vector<std::string> rank_environment(const LaunchOptions& options, int local) {
  const std::vector<std::pair<std::string, std::string>> own = {
      {"RANK", to_text(options.rank(local))},
      {"WORLD_SIZE", to_text(options.world_size())},
      {"LOCAL_RANK", to_text(local)},
      {"LOCAL_WORLD_SIZE", to_text(options.ranks)},
      {"GROUP_RANK", to_text(options.node_rank)},
      {"GROUP_WORLD_SIZE", to_text(options.nodes)},
      {"MASTER_ADDR", options.host},
      {"MASTER_PORT", to_text(options.port)},
      {kOurLauncher, "1"}};
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto name = text.substr(0, text.find('='));
    const bool ours = std::any_of(own.begin(), own.end(),
                                  [&](const auto& variable) { return variable.first == name; });
    // Variables of a torchrun agent in this shell's environment are not ours.
    if (!ours && name.rfind("TORCHELASTIC_", 0) != 0) environment.emplace_back(text);
  }
  for (const auto& [name, value] : own) environment.push_back(name + "=" + value);
  return environment;
}

}  // namespace tanren::cli
