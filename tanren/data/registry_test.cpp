#include "tanren/data/registry.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include <new>

namespace tanren {
namespace {

std::unique_ptr<Dataset> ramp(const SourceOptions& options, const std::string& what,
                              const DataInfo*) {
  TensorMap fields;
  fields.set("inputs", at::arange(options.samples).to(at::kFloat).unsqueeze(1));
  return std::make_unique<TensorDataset>(fields, DataInfo{.input_shape = {1}}, what);
}

TEST(DatasetRegistry, refuses_names_that_are_taken) {
  DatasetRegistry datasets;
  datasets.add("ramp", ramp);
  for (const char* taken : {"ramp", "csv", "tokens"}) {
    EXPECT_THROW(datasets.add(taken, ramp), Error) << taken;
  }
}

TEST(DatasetRegistry, refuses_a_factory_that_gives_nothing) {
  DatasetRegistry datasets;
  datasets.add("none",
               [](const SourceOptions&, const std::string&,
                  const DataInfo*) -> std::unique_ptr<Dataset> { return nullptr; });
  try {
    datasets.open({.kind = "none"}, "data.eval");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "[data.eval] kind 'none' gave no samples; give it some");
  }
}

TEST(DatasetRegistry, calls_want_of_memory_no_fault_of_the_data) {
  DatasetRegistry datasets;
  datasets.add("large",
               [](const SourceOptions&, const std::string&,
                  const DataInfo*) -> std::unique_ptr<Dataset> { throw std::bad_alloc(); });
  EXPECT_THROW(datasets.open({.kind = "large"}, "data.train"), std::bad_alloc);
}

TEST(DatasetRegistry, opens_registered_kinds_and_tanrens_own) {
  DatasetRegistry datasets;
  datasets.add("ramp", ramp);
  EXPECT_EQ(datasets.open({.kind = "ramp", .samples = 3}, "data.train")->size(), 3);
  EXPECT_EQ(datasets
                .open({.kind = "synthetic", .fields = {"inputs: float[2] in [0, 1]"}, .samples = 5},
                      "data.train")
                ->size(),
            5);
  EXPECT_THROW(datasets.open({.kind = "rmp"}, "data.train"), ConfigError);
}

}  // namespace
}  // namespace tanren
