#include "tanren/train/step_error.h"

#include "tanren/base/error_line.h"
#include "tanren/base/text.h"
#include "tanren/blocks/block_trail.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <exception>
#include <sstream>

namespace tanren {

namespace {

// " (8 samples: inputs Float [8, 6], labels Long [8])"
std::string shapes_text(const Batch& piece) {
  std::ostringstream text;
  text << " (" << piece.size() << (piece.size() == 1 ? " sample" : " samples");
  const char* between = ": ";
  for (const auto& [name, field] : piece.fields) {
    text << between << name << " " << c10::toString(field.scalar_type()) << " " << field.sizes();
    between = ", ";
  }
  text << ")";
  return text.str();
}

}  // namespace

std::string said_by(const std::exception& error) {
  const auto* ours = dynamic_cast<const StepError*>(&error);
  return ours != nullptr ? ours->said() : line_of(error);
}

void throw_located(const Where& where) {
  rethrow_known();
  const std::string said = line_of_current();
  const std::string block = block_name(block_trail().failed);
  std::string line = "[train] " + where.work + shapes_text(where.piece);
  const RankAxis& world = where.ranks.world();
  if (!world.alone()) {
    line += fmt::format(", rank {} of {}", to_text(world.rank()), to_text(world.size()));
  }
  if (where.in_backward) {
    line += ", in backward";
  } else if (!block.empty()) {
    line += ", in block " + block;
  }
  std::throw_with_nested(StepError(line + ": " + said + "; fix the task's " + where.fix, said));
}

}  // namespace tanren
