#include "tanren/config/problems.h"

#include "tanren/base/text.h"

namespace tanren {

namespace {

bool is_token_data(const SourceOptions& o) { return o.kind == "text" || o.kind == "tokens"; }

// Keys of token ids that have no meaning if the tokens are bytes.
const std::vector<std::string> kOfIds = {"vocab_size", "document_end", "document_end_token"};

void check_table_pair(Problems& p, const DataOptions& o) {
  p.check(o.train.kind == o.eval.kind, "data.train.kind is \"" + o.train.kind +
                                           "\", data.eval.kind \"" + o.eval.kind +
                                           "\"; make both text_table");
  const auto same = [&](const std::string& key, bool equal) {
    p.check(equal, "data.eval." + key + " differs from data.train." + key +
                       "; one model sees both: make them equal, or drop that of data.eval");
  };
  same("tokenizer", o.eval.tokenizer.empty() || o.eval.tokenizer == o.train.tokenizer);
  same("class_names", o.eval.class_names.empty() || o.eval.class_names == o.train.class_names);
  p.check(o.train.kind != o.eval.kind || o.train.text_pair.empty() == o.eval.text_pair.empty(),
          "one of data.train and data.eval has text_pair; one model sees both: give it to both");
}

void check_text_table(Problems& p, const std::string& section, const SourceOptions& o) {
  p.unused(
      section,
      {"shape", "scale", "offset", "fields", "samples", "stride", "include", "exclude", "part"},
      section + "kind", o.kind);
  p.check(!o.path.empty(), section + "path is missing; name the .csv, .tsv or .jsonl file");
  p.check(!o.text.empty(), section + "text is missing; name the column that holds the text");
  p.check(!o.label.empty(), section + "label is missing; name the column that holds the label");
  p.check(o.text != o.label && o.text_pair != o.label && o.text_pair != o.text,
          section + "text, text_pair and label must be different columns");
  p.check(!o.tokenizer.empty() || section != "data.train.",
          section + "tokenizer is missing; name tokenizer.json, vocab.txt or their folder");
  p.check(o.context != 0, section + "context is missing; give the tokens of the longest sample");
  p.within(section + "context", o.context, 0, kAbsurdWidth, false);
  p.one_of(section + "padding", o.padding, {"longest", "fixed"});
}

// `tokenizer`: the tokenizer that made the ids; empty: unknown, or bytes.
void check_ids(Problems& p, const std::string& section, const SourceOptions& o,
               const std::string& tokenizer) {
  if (o.kind == "text" && tokenizer.empty()) {
    p.unused(section, kOfIds, section + "kind", o.kind);
    return;
  }
  p.check(o.vocab_size != 0 || !tokenizer.empty(),
          section + "vocab_size is missing; give the tokenizer's");
  p.within(section + "vocab_size", o.vocab_size, 0, kAbsurdWidth, false);
  p.check(o.document_end >= -1 && (o.document_end < o.vocab_size || o.vocab_size < 1),
          fmt::format("{}document_end is {}; it must be a token below vocab_size, or -1 for none",
                      section, to_text(o.document_end)));
  const std::string& end = o.document_end_token;
  p.check(end.empty() || !tokenizer.empty(),
          section +
              "document_end_token is a token of a tokenizer; name it in data.train.tokenizer, "
              "or give the id in " +
              section + "document_end");
  p.check(end.empty() || o.document_end == -1,
          section + "document_end and document_end_token both say what ends a document; drop one");
}

}  // namespace

void check_token_data(Problems& p, const std::string& section, const SourceOptions& o) {
  const auto unused = [&](const std::vector<std::string>& keys) {
    p.unused(section, keys, section + "kind", o.kind);
  };
  if (o.kind != "tokens") unused({"dtype"});
  if (!is_token_data(o)) unused(kOfIds);
  if (o.kind == "text_table") {
    check_text_table(p, section, o);
    return;
  }
  unused({"text", "text_pair", "padding"});
  if (!is_token_data(o)) {
    unused({"tokenizer", "context", "stride", "include", "exclude", "part"});
    return;
  }
  unused({"label", "label_type", "shape", "scale", "offset", "classes", "fields", "samples"});
  p.check(!o.path.empty(), section + "path is missing; name a file, a folder or a pattern");
  p.check(o.context != 0, section + "context is missing; give the tokens of a window, such as 256");
  p.within(section + "context", o.context, 0, kAbsurdWidth, false);
  p.check(o.stride >= 0 && (o.stride <= o.context || o.context < 1),
          fmt::format("{}stride is {}; it must lie in [1, context] ({}), or be 0 for context",
                      section, to_text(o.stride), to_text(o.context)));
  if (!o.part.empty()) {
    const bool fine =
        o.part.size() == 2 && o.part[0] >= 0 && o.part[0] < o.part[1] && o.part[1] <= 1;
    p.check(fine, section + "part must be [low, high) within [0, 1], such as [0, 0.9]");
  }
  if (o.kind == "tokens") {
    p.one_of(section + "dtype", o.dtype, {"auto", "uint8", "uint16", "uint32", "int32", "int64"});
  }
  // check_token_pair() checks the ids of data.eval, because they follow from data.train's
  // tokenizer.
  if (section == "data.train.") check_ids(p, section, o, o.tokenizer);
}

void check_token_pair(Problems& p, const DataOptions& o) {
  p.check(is_token_data(o.train) == is_token_data(o.eval),
          "data.train.kind is \"" + o.train.kind + "\", data.eval.kind \"" + o.eval.kind +
              "\"; one model sees both, so both are tokens or neither");
  if (o.train.kind == "text_table" || o.eval.kind == "text_table") check_table_pair(p, o);
  if (!is_token_data(o.train) || !is_token_data(o.eval)) return;
  p.check(o.eval.tokenizer.empty() || o.eval.tokenizer == o.train.tokenizer,
          "data.eval.tokenizer differs from data.train.tokenizer; one model sees both: make them "
          "equal, or drop that of data.eval");
  check_ids(p, "data.eval.", o.eval, o.train.tokenizer);
  if (!o.train.tokenizer.empty()) return;  // it gives the number of tokens
  const auto vocabulary = [](const SourceOptions& source) {
    return source.kind == "text" ? 256 : source.vocab_size;
  };
  p.check(vocabulary(o.train) == vocabulary(o.eval),
          fmt::format("data.train has a vocabulary of {}, data.eval of {}; one model sees both: "
                      "make them agree",
                      to_text(vocabulary(o.train)), to_text(vocabulary(o.eval))));
}

}  // namespace tanren
