#include "tests/support/accelerator/kind.h"

#include "tests/support/accelerator/accelerator.h"

namespace tanren::sim {

AcceleratorKind accelerator_kind() {
  return {.name = "sim",
          .probe =
              [] {
                const std::vector<size_t> limits = memory_limits();
                return Accelerators{
                    .kind = "sim", .bytes = {limits.begin(), limits.end()}, .bf16 = true};
              },
          .limit =
              [](double share) {
                const std::vector<size_t> all = memory_limits();
                for (size_t i = 0; i < all.size(); ++i) {
                  set_limit(static_cast<int>(i),
                            static_cast<size_t>(share * static_cast<double>(all[i])));
                }
              }};
}

}  // namespace tanren::sim
