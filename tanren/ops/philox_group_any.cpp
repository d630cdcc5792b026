#include "tanren/ops/philox_group.h"

namespace tanren {

DrawGroup best_draw_group() { return draw_group_portable; }

}  // namespace tanren
