#include "tanren/optimizer/optimizer.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/optimizer/adamw.h"
#include "tanren/optimizer/sgd.h"

namespace tanren {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          const std::vector<NamedParameter>& parameters) {
  if (options.kind == "adamw") return make_adamw(options, parameters);
  if (options.kind == "sgd") return make_sgd(options, parameters);
  const std::vector<std::string> kinds = {"adamw", "sgd"};
  const std::string near = nearest(options.kind, kinds);
  throw ConfigError("[optimizer] kind '" + options.kind + "' is unknown; " +
                    (near.empty() ? "there are " + join(kinds) : "did you mean '" + near + "'?"));
}

}  // namespace tanren
