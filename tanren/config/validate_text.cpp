#include "tanren/config/problems.h"

#include "tanren/base/text.h"

namespace tanren {

namespace {

bool is_token_data(const SourceOptions& o) { return o.kind == "text" || o.kind == "tokens"; }

}  // namespace

void check_token_data(Problems& p, const std::string& section, const SourceOptions& o,
                      const std::set<std::string>& changed) {
  const auto unused = [&](const std::vector<std::string>& keys) {
    p.unused(changed, section, keys, section + "kind", o.kind);
  };
  if (o.kind != "tokens") unused({"dtype", "vocab_size", "document_end"});
  if (!is_token_data(o)) {
    unused({"context", "stride", "include", "exclude", "part"});
    return;
  }
  unused({"label", "label_type", "shape", "scale", "offset", "classes", "fields", "samples"});
  p.check(!o.path.empty(), section + "path is missing; name a file, a folder or a pattern");
  p.check(o.context != 0, section + "context is missing; give the tokens of a window, such as 256");
  p.within(section + "context", static_cast<double>(o.context), 0, kAbsurdWidth, false);
  p.check(o.stride >= 0 && (o.stride <= o.context || o.context < 1),
          section + "stride is " + to_text(o.stride) + "; it must lie in [1, context] (" +
              to_text(o.context) + "), or be 0 for context");
  if (!o.part.empty()) {
    const bool fine =
        o.part.size() == 2 && o.part[0] >= 0 && o.part[0] < o.part[1] && o.part[1] <= 1;
    p.check(fine, section + "part must be [low, high) within [0, 1], such as [0, 0.9]");
  }
  if (o.kind != "tokens") return;
  p.one_of(section + "dtype", o.dtype, {"auto", "uint8", "uint16", "uint32", "int32", "int64"});
  p.check(o.vocab_size != 0, section + "vocab_size is missing; give the tokenizer's");
  p.within(section + "vocab_size", static_cast<double>(o.vocab_size), 0, kAbsurdWidth, false);
  p.check(o.document_end >= -1 && (o.document_end < o.vocab_size || o.vocab_size < 1),
          section + "document_end is " + to_text(o.document_end) +
              "; it must be a token below vocab_size, or -1 for none");
}

void check_token_pair(Problems& p, const DataOptions& o) {
  p.check(is_token_data(o.train) == is_token_data(o.eval),
          "data.train.kind is \"" + o.train.kind + "\", data.eval.kind \"" + o.eval.kind +
              "\"; one model sees both, so both are tokens or neither");
  if (!is_token_data(o.train) || !is_token_data(o.eval)) return;
  const auto vocabulary = [](const SourceOptions& source) {
    return source.kind == "text" ? 256 : source.vocab_size;
  };
  p.check(vocabulary(o.train) == vocabulary(o.eval),
          "data.train has a vocabulary of " + to_text(vocabulary(o.train)) + ", data.eval of " +
              to_text(vocabulary(o.eval)) + "; one model sees both: make them agree");
}

}  // namespace tanren
