// On CPU, libtorch 2.11 computes a convolution's weight gradient in fp16 by very slow code (a
// hundred times the fp32 one). This replaces the backward for fp16 tensors on the CPU with one that
// takes that gradient on fp32 copies; every other dtype passes through unchanged. It also keeps
// oneDNN from 1 × 1 kernels with a stride whose channels do not fill its vectors: there it writes
// past the end of a buffer.
#pragma once

namespace tanren {

// Installs the replacement for the life of the process. Later calls do nothing. Thread-safe.
void enable_half_convolution();

}  // namespace tanren
