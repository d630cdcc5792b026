#include "tanren/comm/backend.h"

#include "tanren/base/error.h"
#include "tanren/comm/gloo.h"

namespace tanren {

std::unique_ptr<Communicator> make_communicator(const World& world, const CommOptions& options) {
  if (world.size == 1) return single_communicator();
  if (options.backend != "auto" && options.backend != "gloo" && options.backend != "single") {
    throw ConfigError("[comm] backend " + options.backend +
                      " is not in this program; set parallel.backend = \"gloo\"");
  }
  if (!options.meeting.empty()) {
    throw ConfigError("[comm] meeting " + options.meeting +
                      ": ranks meet where their launcher says; leave parallel.meeting empty");
  }
  return gloo_communicator(world, options.patience);
}

}  // namespace tanren
