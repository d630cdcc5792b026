#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, MemoryOptions& o) {
  add("allocator", &o.allocator, Identity::free,
      "CPU tensors: cached (large ones keep their pages), default (torch's), auto.");
  add("limit", &o.limit, Identity::free,
      "Most that tensors may take: bytes (\"8GiB\", \"500MB\"), a share of the machine's memory or "
      "the device's (\"0.5\"), none; auto: what cgroup, machine or device leave.");
  add("recompute", &o.recompute, Identity::free,
      "Patterns of the model's blocks (as tanren summary names them) that keep their input alone "
      "for backward and are computed again there: less memory, more time, the same numbers. "
      "[\"*\"]: all.");
  add("offload", &o.offload, Identity::free,
      "Patterns of blocks that move to host memory what they keep for backward, from the device "
      "and back beside its work: less of the device's memory, the same numbers. Of a block that is "
      "recomputed nothing is left to move; on the CPU it says so and does nothing.");
  add("recovery", &o.recovery, Identity::free,
      "When memory runs out: split (a smaller microbatch, same global batch and numbers), "
      "same_split (once more as it was), off (end the run); auto: split, but same_split where "
      "batch norm would see another microbatch.");
  add("release_cache", &o.release_cache, Identity::free,
      "When freed memory that the allocator keeps for the next step goes back: never, pressure "
      "(after a step, if less than a twentieth of the machine's, cgroup's or device's memory is "
      "left), step (after each). All of it also goes after an evaluation and when memory runs "
      "out.");
}

void check_memory(Problems& p, const MemoryOptions& o) {
  p.one_of("memory.allocator", o.allocator, {"auto", "cached", "default"});
  p.one_of("memory.release_cache", o.release_cache, {"never", "pressure", "step"});
  p.one_of("memory.recovery", o.recovery, {"auto", "split", "same_split", "off"});
  p.check(o.limit == "auto" || o.limit == "none" || parse_memory(o.limit).has_value(),
          "memory.limit \"" + o.limit +
              "\" is no amount of memory; write bytes (\"8GiB\", \"500MB\"), a share in (0, 1) "
              "(\"0.5\"), none or auto");
}

}  // namespace tanren
