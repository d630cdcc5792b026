#include "tanren/config/problems.h"

#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"

#include <algorithm>
#include <cmath>

namespace tanren {

namespace {

void check_only_classes(Problems& p, const std::string& section, const SourceOptions& o) {
  const auto& only = o.only_classes;
  p.check(only.size() != 1, section + "only_classes has one class; a classifier needs two or more");
  p.check(std::set<std::string>(only.begin(), only.end()).size() == only.size(),
          section + "only_classes names a class twice; drop one");
  p.check(only.empty() || o.label_type != "value",
          section + "only_classes has no meaning for " + section + "label_type \"value\"; drop it");
}

void check_source(Problems& p, const std::string& section, const SourceOptions& o,
                  const ModelOptions& model, const std::vector<std::string>& registered,
                  const std::set<std::string>& changed) {
  const auto unused = [&](const std::vector<std::string>& keys) {
    p.unused(changed, section, keys, section + "kind", o.kind);
  };
  Keys kinds = names_of(dataset_kinds());
  kinds.insert(kinds.end(), registered.begin(), registered.end());
  p.one_of(section + "kind", o.kind, kinds);
  // A registered kind may read any key, and reports itself which keys it needs.
  if (std::find(registered.begin(), registered.end(), o.kind) != registered.end()) return;
  check_images(p, section, o, changed);
  check_token_data(p, section, o, changed);
  if (o.kind == "csv" || o.kind == "tensors") {
    p.check(!o.path.empty(), section + "path is missing; name the " + o.kind + " file");
    unused({"fields", "samples"});
  }
  if (o.kind == "images") unused({"fields", "samples", "classes"});
  if (o.kind == "images" || o.kind == "tensors" || o.kind == "synthetic") {
    unused({"label", "label_type", "shape", "scale", "offset"});
    if (o.kind == "synthetic") unused({"classes"});
  }
  if (o.kind == "synthetic") {
    unused({"path"});
    p.check(!o.fields.empty(),
            section +
                "fields is missing; for example [\"inputs: float[64] in [-1, 1]\", "
                "\"labels: int[] in [0, 9]\"]");
    p.count(section + "samples", o.samples, 1);
  }
  if (o.kind != "csv" && o.kind != "tensors" && o.kind != "images") unused({"only_classes"});
  check_only_classes(p, section, o);
  p.sizes(section + "shape", o.shape);
  p.one_of(section + "label_type", o.label_type, {"class", "value"});
  p.within(section + "classes", static_cast<double>(o.classes), 0, kAbsurdWidth, false);
  p.check(o.scale != 0 && std::isfinite(o.scale),
          section + "scale is " + to_text(o.scale) + "; it must be finite and not 0");
  p.check(std::isfinite(o.offset), section + "offset is " + to_text(o.offset) + "; give a number");
  p.check((o.kind != "csv" && o.kind != "text_table") || o.label_type != "value" ||
              model.loss != "cross_entropy",
          section +
              "label_type \"value\" does not go with model.loss \"cross_entropy\"; take "
              "mse, l1 or bce");
  p.check(o.label_type != "value" || o.classes == 0,
          section + "classes has no meaning for " + section + "label_type \"value\"; drop it");
}

void check_csv_pair(Problems& p, const DataOptions& o) {
  if (o.train.kind != "csv" || o.eval.kind != "csv") return;
  const auto same = [&](const std::string& key, bool equal) {
    p.check(equal, "data.eval." + key + " differs from data.train." + key +
                       "; a model must be evaluated on what it was trained on: make them equal");
  };
  same("scale", o.train.scale == o.eval.scale);
  same("offset", o.train.offset == o.eval.offset);
}

}  // namespace

void check_data(Problems& p, const RunConfig& config, const std::vector<std::string>& registered,
                const std::set<std::string>& changed) {
  const DataOptions& o = config.data;
  if (o.train.kind.empty()) {
    p.check(false, "data.train.kind is missing; one of " + join(names_of(dataset_kinds())));
  } else {
    check_source(p, "data.train.", o.train, config.model, registered, changed);
  }
  if (!o.eval.kind.empty()) {
    check_source(p, "data.eval.", o.eval, config.model, registered, changed);
    check_image_pair(p, o);
    check_token_pair(p, o);
    check_csv_pair(p, o);
    const bool compares = o.train.kind == o.eval.kind;
    p.check(
        !compares || o.train.only_classes == o.eval.only_classes,
        "data.eval.only_classes differs from data.train.only_classes; a model must be evaluated "
        "on what it was trained on: make them equal");
  } else {
    for (const auto& key : changed) {
      if (!key.starts_with("data.eval.")) continue;
      p.unused_keys.push_back({key, "data.eval.kind"});
      p.check(false, key + " is set, data.eval.kind is not; set it too");
    }
  }
  p.within("data.workers", static_cast<double>(o.workers), 0, 256, true);
  p.within("data.prefetch", static_cast<double>(o.prefetch), 1, 4096, true);
  p.one_of("data.last", o.last, {"keep", "drop"});
  p.one_of("data.encoding", o.encoding, {"utf-8", "latin-1"});
  const auto reads_text = [](const SourceOptions& source) {
    const DatasetKind* kind = dataset_kind(source.kind);
    return source.kind.empty() || (kind != nullptr && kind->has_encoding);
  };
  const bool is_own =
      std::find(registered.begin(), registered.end(), o.train.kind) != registered.end();
  if (!reads_text(o.train) && !is_own) {
    p.unused(changed, "data.", {"encoding"}, "data.train.kind", o.train.kind);
  }
}

}  // namespace tanren
