#include "tanren/predict/generate_text.h"

#include "tanren/base/error.h"
#include "tanren/data/dataset.h"
#include "tanren/predict/described_model.h"
#include "tanren/predict/fit_batch.h"
#include "tanren/run/connect.h"
#include "tanren/run/prepare_whole.h"
#include "tanren/run/short_waits.h"

#include <ATen/ATen.h>

#include <memory>
#include <utility>

namespace tanren {

namespace {

// A sample of tokens, for the dry run that chooses the threads as evaluations do.
std::unique_ptr<Dataset> probe_of_tokens(const DataInfo& info) {
  const at::Tensor ids = at::zeros({1, info.input_shape.front()}, at::kLong);
  Batch one;
  one.fields.set("inputs", ids);
  one.fields.set("labels", ids);
  one.ids = ids_of({0});
  return probe_dataset(std::move(one), info);
}

bool reads_tokens(const DataInfo& info) {
  return info.vocab_size > 0 && info.input_shape.size() == 1 && info.input_shape.front() > 0;
}

GenerateOutput generate_on(const GenerateInput& input, const Registry& registry,
                           DescribedModel model, const std::shared_ptr<Communicator>& ranks) {
  RunConfig& config = model.description.config;
  const DataInfo& info = model.description.info;
  if (input.prompt) config.generate.prompt = *input.prompt;
  Prepared prepared = prepared_model(model, input.model, registry);
  if (!prepared.task.generate) {
    throw ConfigError("[generate] " + model.name + " is of kind " + config.model.kind +
                      " and predicts no next token; name a language model (gpt2, lstm)");
  }
  if (config.generate.tokens == 0) {
    throw ConfigError("[generate] generate.tokens is 0; say how many to write");
  }
  std::unique_ptr<Dataset> probe;
  if (reads_tokens(info)) {
    probe = probe_of_tokens(info);
    prepared.fit.dataset = probe.get();
    fit_threads(prepared);
  }
  const ShortWaits waits(prepared.plan.device.threads);
  Parts parts = build_parts(prepared.plan, nullptr, registry.accelerators);
  parts.ranks = std::make_shared<Ranks>(ranks, prepared.plan.parallel);
  RunState state = whole_state(std::move(prepared.task), parts, model.read.metadata);
  GenerateOutput output;
  output.is_first = parts.ranks->world().is_first();
  output.weights = model.weights;
  const SampleWays ways{.see = output.is_first ? input.see : SeeText(), .reads_prompt = true};
  output.text = write_sample(state, parts, info, ways).value_or("");
  return output;
}

}  // namespace

GenerateOutput generate_text(const GenerateInput& input, const Registry& registry) {
  DescribedModel model = described_model(input.model, input.sets, registry, "generate");
  const RunConfig config = model.description.config;
  return with_ranks(config, world_of(process_environment(), config.parallel.rendezvous),
                    registry.accelerators, [&](const std::shared_ptr<Communicator>& ranks) {
                      model = agreed_model(std::move(model), input.model, input.sets, registry,
                                           *ranks, "generate");
                      return generate_on(input, registry, std::move(model), ranks);
                    });
}

}  // namespace tanren
