// Takes the place of the NCCL plugin in lost_rank_test: a backend that has rank and size, but no
// collectives.
#include "tanren/comm/nccl_plugin.h"

#include <stdexcept>
#include <string>

namespace {

class FakeNccl final : public c10d::Backend {
 public:
  FakeNccl(int rank, int size) : Backend(rank, size) {}
  const std::string getBackendName() const override { return "fake"; }
};

}  // namespace

#ifdef __clang__  // caller and plugin are both C++
#pragma clang diagnostic ignored "-Wreturn-type-c-linkage"
#endif
extern "C" __attribute__((visibility("default"))) c10::intrusive_ptr<c10d::Backend>
tanren_nccl_backend_1(const tanren::NcclRequest& request) {
  if (request.device != 0 || request.timeout != std::chrono::minutes(1)) {
    throw std::invalid_argument("not what comm_rank asks for");
  }
  request.store->set("here/" + std::to_string(request.rank), std::string("yes"));
  return c10::make_intrusive<FakeNccl>(request.rank, request.size);
}
