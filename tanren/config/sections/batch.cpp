#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, BatchOptions& o) {
  add("global_batch", &o.global_batch, Identity::defines,
      "Samples per update over all ranks, or \"epoch\": all samples in one update.",
      TextKind::number_or_word);
  add("microbatch", &o.microbatch, Identity::free,
      "Samples per forward and backward; 0: a rank's whole share.");
}

void check_batch(Problems& p, const BatchOptions& o) {
  p.count("batch.microbatch", o.microbatch, 0);
  if (o.global_batch == "epoch") return;
  int64_t size = 0;
  const bool fine = reads_as(o.global_batch, size) && size > 0 && size < kAbsurd;
  p.check(fine, "batch.global_batch is \"" + o.global_batch +
                    "\"; give a positive whole number or \"epoch\"");
  p.check(!fine || o.microbatch <= size,
          fmt::format("batch.microbatch {} is larger than batch.global_batch {}; lower it",
                      to_text(o.microbatch), to_text(size)));
}

}  // namespace tanren
