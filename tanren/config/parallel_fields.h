// The keys of [parallel]: see fields.h.
#pragma once

#include "tanren/config/field_info.h"
#include "tanren/config/run_config.h"

namespace tanren {

template <class V>
void fields(V& v, ParallelOptions& o) {
  v("ranks", o.ranks,
    {"How the samples of a step are shared: processes (ranks that a launcher starts: tanren "
     "launch, torchrun, srun, mpirun), threads (replicas of the model in one process).",
     Identity::free});
  v("replicas", o.replicas,
    {"threads: how many, 0 to 1024; 0: one for each device, on the CPU as many as the plan takes "
     "for faster.",
     Identity::free});
  v("devices", o.devices,
    {"threads: CUDA devices of the replicas, in turn; empty: all there are.", Identity::free});
  v("backend", o.backend,
    {"processes: auto (nccl where every rank has a CUDA device of its own, else gloo), gloo, nccl.",
     Identity::free});
  v("rendezvous", o.rendezvous,
    {"processes: where they meet, tcp://host:port (of rank 0) or file:///path (on a disk of all); "
     "empty: as the launcher says.",
     Identity::free});
  v("timeout", o.timeout,
    {"Seconds that a rank waits for the others, at the start and in a step, before it ends with "
     "the names of those that are missing; in (0, 1e7].",
     Identity::free});
  v("bucket_mb", o.bucket_mb,
    {"Gradients that are summed over ranks at once, in MiB, in (0, 65536].", Identity::free});
  v("first_bucket_mb", o.first_bucket_mb,
    {"The same for those that backward completes first, so that the wire is busy early; at most "
     "bucket_mb.",
     Identity::free});
  v("overlap", o.overlap,
    {"Sum a bucket as soon as backward has filled it, and with zero go forward while weights still "
     "come; false: all after backward, and all before forward.",
     Identity::free});
  v("compress", o.compress,
    {"What gradients are rounded to on their way: none, bf16, fp16. Half the bytes of fp32, other "
     "numbers."});
  v("buffers", o.buffers,
    {"What batch norm's running statistics become over ranks after each step: mean over samples, "
     "first (of the first rank with samples); synchronised: batch norm sees the samples of all "
     "ranks, and what it keeps is equal."});
  v("check_every", o.check_every,
    {"Applied steps between comparisons of the weights over ranks, which must be the same to the "
     "last bit; 0: at the start alone.",
     Identity::free});
  v("zero", o.zero,
    {"What each rank keeps its own part of alone: 0 nothing, 1 the optimizer's state, 2 gradients "
     "too. The same numbers.",
     Identity::free});
}

}  // namespace tanren
