#include "tanren/optimizer/optimizer.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/config/kinds.h"
#include "tanren/optimizer/adafactor.h"
#include "tanren/optimizer/adamw.h"
#include "tanren/optimizer/element_optimizer.h"
#include "tanren/optimizer/group.h"
#include "tanren/optimizer/muon.h"
#include "tanren/optimizer/packed_adamw.h"
#include "tanren/optimizer/parameter_values.h"
#include "tanren/optimizer/sgd.h"

#include <algorithm>
#include <map>

namespace tanren {

namespace {

using Parameters = std::vector<NamedParameter>;
using Make = std::unique_ptr<Optimizer> (*)(const OptimizerOptions&, const Parameters&);

std::unique_ptr<Optimizer> adam_of(const OptimizerOptions& options, const Parameters& parameters) {
  if (options.state != "fp32") return make_packed_adamw(options, parameters);
  return make_adamw(options, make_groups(options, parameters));
}

template <auto make_rule>
std::unique_ptr<Optimizer> by_rule(const OptimizerOptions& options, const Parameters& parameters) {
  return make_element_optimizer(options, parameters, make_rule(options));
}

const std::map<std::string, Make>& makers() {
  static const std::map<std::string, Make> kinds = {
      {"adafactor", make_adafactor},
      {"adagrad", by_rule<make_adagrad_rule>},
      {"adam", adam_of},
      {"adamw", adam_of},
      {"lion", by_rule<make_lion_rule>},
      {"muon", make_muon},
      {"nadam", by_rule<make_nadam_rule>},
      {"radam", by_rule<make_radam_rule>},
      {"rmsprop", by_rule<make_rmsprop_rule>},
      {"sgd", make_sgd},
  };
  return kinds;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& asked,
                                          const std::vector<NamedParameter>& parameters,
                                          const std::vector<NamedParameter>& model) {
  const std::string& kind = asked.kind;
  OptimizerOptions options = with_defaults(asked);
  const bool sliced = !parameters.empty() && parameters.front().whole.defined();
  if (sliced || model.size() > parameters.size()) {
    options = resolved(options, parameters, model);
  } else {
    check_patterns(options, parameters);
  }
  const auto make = makers().find(kind);
  if (make != makers().end()) return make->second(options, parameters);
  Keys kinds = names_of(optimizer_kinds());
  // Puts the default first: if two names are equally near, it is suggested.
  std::rotate(kinds.begin(), std::find(kinds.begin(), kinds.end(), OptimizerOptions().kind),
              kinds.end());
  const std::string near = nearest(kind, kinds);
  throw ConfigError("[optimizer] kind '" + kind + "' is unknown; " +
                    (near.empty() ? "there are " + join(kinds) : "did you mean '" + near + "'?"));
}

}  // namespace tanren
