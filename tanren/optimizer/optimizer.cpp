#include "tanren/optimizer/optimizer.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/optimizer/adafactor.h"
#include "tanren/optimizer/adamw.h"
#include "tanren/optimizer/element_optimizer.h"
#include "tanren/optimizer/group.h"
#include "tanren/optimizer/muon.h"
#include "tanren/optimizer/packed_adamw.h"
#include "tanren/optimizer/parameter_values.h"
#include "tanren/optimizer/sgd.h"

#include <utility>

namespace tanren {

namespace {

// Null for a kind without one.
std::unique_ptr<ElementRule> rule_of(const OptimizerOptions& options) {
  if (options.kind == "adagrad") return make_adagrad_rule(options);
  if (options.kind == "lion") return make_lion_rule(options);
  if (options.kind == "nadam") return make_nadam_rule(options);
  if (options.kind == "radam") return make_radam_rule(options);
  if (options.kind == "rmsprop") return make_rmsprop_rule(options);
  return nullptr;
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
  if ((kind == "adamw" || kind == "adam") && options.state != "fp32") {
    return make_packed_adamw(options, parameters);
  }
  if (kind == "adamw" || kind == "adam") {
    return make_adamw(options, make_groups(options, parameters));
  }
  if (kind == "sgd") return make_sgd(options, parameters);
  if (kind == "adafactor") return make_adafactor(options, parameters);
  if (kind == "muon") return make_muon(options, parameters);
  if (auto rule = rule_of(options)) {
    return make_element_optimizer(options, parameters, std::move(rule));
  }
  const std::vector<std::string> kinds = {"adamw",   "adam",      "nadam", "radam", "adagrad",
                                          "rmsprop", "adafactor", "lion",  "muon",  "sgd"};
  const std::string near = nearest(kind, kinds);
  throw ConfigError("[optimizer] kind '" + kind + "' is unknown; " +
                    (near.empty() ? "there are " + join(kinds) : "did you mean '" + near + "'?"));
}

}  // namespace tanren
