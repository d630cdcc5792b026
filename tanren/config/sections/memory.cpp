#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, MemoryOptions& o) {
  add("allocator", &o.allocator, Identity::free,
      "CPU tensors: cached (large ones keep their pages), default (torch's), auto.");
  add("limit", &o.limit, Identity::free,
      "Most memory for tensors: bytes (\"8GiB\", \"500MB\"), a share of the machine's or the "
      "device's (\"0.5\"), none, auto (nine tenths of what machine and cgroup allow, or all of a "
      "device).");
  add("recompute", &o.recompute, Identity::free,
      "Patterns of the model's blocks (as tanren summary names them) that keep only their input "
      "for backward and are computed again there: less memory, more time, the same numbers. "
      "[\"*\"]: all.");
  add("offload", &o.offload, Identity::free,
      "Patterns of blocks whose tensors for backward move from the device to host memory and back "
      "while the device computes: less of its memory, the same numbers. No effect on blocks that "
      "are recomputed, and none on the CPU, where the run says so.");
  add("recovery", &o.recovery, Identity::free,
      "Action when memory runs out: split (a smaller microbatch, same global batch and numbers), "
      "same_split (retry unchanged), off (end the run), auto (split, but same_split if batch norm "
      "would see another microbatch).");
  add("release_cache", &o.release_cache, Identity::free,
      "When the allocator returns freed memory that it keeps for the next step: never, pressure "
      "(after a step, if less than a twentieth of the machine's, cgroup's or device's memory is "
      "left), step (after each). It also returns all of it after an evaluation and when memory "
      "runs out.");
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
