// A dataset of your own that a config can name: points on interleaved spirals, one spiral per
// class, computed on demand. Training shifts each point at random, differently in every epoch.

#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/cli.h"
#include "tanren/data/dataset.h"

#include <ATen/ATen.h>

#include <cmath>

namespace {

constexpr double kPi = 3.14159265358979323846;

// Random number in [-1, 1) that depends only on the arguments. A dataset needs this, because
// otherwise workers, resumed runs and retries would see other data.
float uniform(uint64_t seed, uint64_t stream, int64_t index) {
  const uint64_t bits = tanren::random_bits(seed, stream, static_cast<uint64_t>(index));
  return static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-52 - 1);
}

class Spirals : public tanren::Dataset {
 public:
  Spirals(int64_t samples, int64_t classes) : samples_(samples), classes_(classes) {}
  int64_t size() const override { return samples_; }
  tanren::DataInfo info() const override { return {.input_shape = {2}, .outputs = classes_}; }

  tanren::Collated collate(const std::vector<int64_t>& indices) const override {
    const auto count = static_cast<int64_t>(indices.size());
    const at::Tensor points = at::empty({count, 2}, at::kFloat);
    const at::Tensor labels = at::empty({count}, at::kLong);
    const at::Tensor ids = at::empty({count}, at::kLong);
    auto* point = points.mutable_data_ptr<float>();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = indices[static_cast<size_t>(i)];
      const int64_t label = index % classes_;
      const double along = (uniform(0, 0, index) + 1) / 2;  // from the middle outwards
      const double turn = static_cast<double>(label) / static_cast<double>(classes_);
      const double angle = 2 * kPi * (turn + 0.75 * along);
      *point++ = static_cast<float>(along * std::cos(angle));
      *point++ = static_cast<float>(along * std::sin(angle));
      labels.mutable_data_ptr<int64_t>()[i] = label;
      ids.mutable_data_ptr<int64_t>()[i] = index;
    }
    tanren::Collated collated;
    collated.batch.fields.set("inputs", points);
    collated.batch.fields.set("labels", labels);
    collated.batch.ids = ids;
    collated.counts["samples"] = static_cast<double>(count);  // the loss is divided by this
    return collated;
  }

  tanren::Collated collate_training(const std::vector<int64_t>& indices,
                                    const tanren::Draw& draw) const override {
    tanren::Collated collated = collate(indices);
    at::Tensor points = collated.batch["inputs"];
    auto* point = points.mutable_data_ptr<float>();
    const auto epoch = static_cast<uint64_t>(draw.epoch);
    for (const int64_t index : indices) {
      *point++ += 0.02F * uniform(draw.seed, epoch, 2 * index);
      *point++ += 0.02F * uniform(draw.seed, epoch, 2 * index + 1);
    }
    return collated;
  }

 private:
  int64_t samples_, classes_;
};

std::unique_ptr<tanren::Dataset> open_spirals(const tanren::SourceOptions& options,
                                              const std::string& what, const tanren::DataInfo*) {
  if (options.classes < 2) {
    throw tanren::ConfigError("[spirals] " + what + ".classes is " +
                              std::to_string(options.classes) + "; give 2 or more");
  }
  return std::make_unique<Spirals>(options.samples, options.classes);
}

}  // namespace

int main(int argc, char** argv) {
  tanren::Registry registry;
  registry.datasets.add("spirals", open_spirals);
  return tanren::cli::main(argc, argv, registry);
}
