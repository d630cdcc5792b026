#include "tanren/run/rank_lines.h"

#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"

#include <unistd.h>

#include <cstring>

namespace tanren {

std::string rank_line(const Plan& plan, std::string_view engine, std::string_view host,
                      int64_t process) {
  const ParallelPlan& parallel = plan.parallel;
  const std::string stage =
      parallel.pipeline == 1
          ? ""
          : fmt::format("stage {} of {}, ", parallel.stage() + 1, parallel.pipeline);
  return fmt::format("rank {} of {}: {}{}, {} threads, {}, {}, process {}", parallel.rank,
                     parallel.world_size, stage, plan.device.text(), plan.device.threads, engine,
                     host, process);
}

std::vector<std::string> rank_lines(const Parts& parts) {
  const RankAxis& world = parts.ranks->world();
  if (world.alone()) return {};
  std::string host(256, '\0');
  if (::gethostname(host.data(), host.size() - 1) != 0) host = "unknown host";
  host.resize(std::strlen(host.c_str()));
  Communicator& comm = world.communicator();
  return gather_texts(comm, rank_line(parts.plan, comm.name(), host, ::getpid()));
}

}  // namespace tanren
