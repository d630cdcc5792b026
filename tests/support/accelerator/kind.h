// The simulated accelerator as a kind that a program can use: run.device = "sim" or "sim:<i>".
#pragma once

#include "tanren/train/device.h"

namespace tanren::sim {

AcceleratorKind accelerator_kind();

}  // namespace tanren::sim
