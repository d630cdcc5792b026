#include "tanren/plan/pipeline_cut.h"

#include "tanren/base/names.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <limits>

namespace tanren {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A stage that grows block by block.
class GrowingStage {
 public:
  GrowingStage(const ModelBlocks& model, const CutOptions& options, size_t stage, size_t begin)
      : model_(model), is_held_(model.weights.size(), false) {
    const int64_t in_flight = stage < options.in_flight.size() ? options.in_flight[stage] : 1;
    samples_ = in_flight * options.samples;
    if (options.most_samples > 0) samples_ = std::min(samples_, options.most_samples);
    cost_.begin = cost_.end = begin;
    if (begin > 0) cost_.bytes = samples_ * model.blocks[begin - 1].output_bytes;
    for (size_t before = 0; before < begin; ++before) {
      cost_.bytes += samples_ * model.blocks[before].kept_before;
      hold(model.blocks[before].weights_before);
    }
  }

  const StageCost& add_block() {
    const BlockCost& block = model_.blocks[cost_.end++];
    cost_.forward += block.forward;
    cost_.backward += block.backward;
    cost_.bytes += samples_ * block.kept_bytes;
    hold(block.weights);
    return cost_;
  }

 private:
  void hold(const std::vector<size_t>& weights) {
    for (const size_t weight : weights) {
      if (is_held_[weight]) continue;
      is_held_[weight] = true;
      cost_.bytes += model_.weights[weight].bytes + model_.weights[weight].state_bytes;
    }
  }

  const ModelBlocks& model_;
  std::vector<bool> is_held_;
  int64_t samples_ = 0;  // held at once
  StageCost cost_;
};

// Finds the cut whose largest price of a stage is smallest, by dynamic programming from the last
// stage to the first.
class CutSearch {
 public:
  using Price = double (*)(const StageCost&);

  CutSearch(const ModelBlocks& model, const CutOptions& options, Price price, int64_t limit)
      : model_(model),
        options_(options),
        price_(price),
        limit_(limit),
        num_stages_(static_cast<size_t>(std::max<int64_t>(options.stages, 0))),
        num_blocks_(model.blocks.size()) {
    for (size_t place = 0; place < num_blocks_; ++place) {
      may_begin_.push_back(cut_obstacle(model, place).empty());
    }
  }

  std::optional<PipelineCut> best() {
    if (num_stages_ < 1 || num_stages_ > num_blocks_) return std::nullopt;
    rest_.assign(num_stages_ + 1, std::vector<double>(num_blocks_ + 1, kNever));
    rest_[num_stages_][num_blocks_] = 0;
    for (size_t stage = num_stages_; stage-- > 0;) {
      for (size_t begin = stage; begin < num_blocks_; ++begin) {
        if (stage == 0 ? begin > 0 : !may_begin_[begin]) continue;
        over_ends(stage, begin, [&](size_t, double price) {
          rest_[stage][begin] = std::min(rest_[stage][begin], price);
          return true;
        });
      }
    }
    // If a cut is ruled out, only cuts with a higher price may be left.
    for (double most = rest_[0][0]; most != kNever;) {
      PipelineCut cut;
      double dearer = kNever;
      if (find(0, 0, most, cut, dearer)) return cut;
      most = dearer;
    }
    return std::nullopt;
  }

 private:
  // Finds the first cut with a price of at most `most` that is not ruled out, and appends to `cut`
  // the ends of its stages from `stage` on, without the last stage's. Returns false if there is
  // none, and lowers `dearer` to the least price above `most`.
  bool find(size_t stage, size_t begin, double most, PipelineCut& cut, double& dearer) const {
    if (stage + 1 == num_stages_) {
      const auto& out = options_.ruled_out;
      return std::find(out.begin(), out.end(), cut) == out.end();
    }
    bool found = false;
    over_ends(stage, begin, [&](size_t end, double price) {
      if (price > most) {
        dearer = std::min(dearer, price);
        return true;
      }
      cut.push_back(end);
      found = find(stage + 1, end, most, cut, dearer);
      if (!found) cut.pop_back();
      return !found;
    });
    return found;
  }

  // Calls look(end, price) for each possible end of the stage that begins at `begin`, by rising
  // end, until look returns false. `price` is the largest price of a stage from this one on.
  template <class F>
  void over_ends(size_t stage, size_t begin, F&& look) const {
    GrowingStage growing(model_, options_, stage, begin);
    for (size_t end = begin + 1; end <= num_blocks_; ++end) {
      const StageCost& cost = growing.add_block();
      // A stage with more blocks needs at least as much.
      if ((limit_ > 0 && cost.bytes > limit_) || is_too_large(stage, begin, end)) return;
      const double rest = rest_[stage + 1][end];
      if (rest != kNever && !look(end, std::max(price_(cost), rest))) return;
    }
  }

  bool is_too_large(size_t stage, size_t begin, size_t end) const {
    return std::any_of(options_.too_large.begin(), options_.too_large.end(),
                       [&](const StageSpan& span) {
                         return span.stage == stage && begin <= span.begin && span.end <= end;
                       });
  }

  const ModelBlocks& model_;
  const CutOptions& options_;
  Price price_;
  int64_t limit_;
  size_t num_stages_, num_blocks_;
  std::vector<bool> may_begin_;            // whether a later stage may begin there
  std::vector<std::vector<double>> rest_;  // [stage][begin]: least largest price from there on
};

std::vector<std::string> block_names(const ModelBlocks& model) {
  std::vector<std::string> names;
  for (const BlockCost& block : model.blocks) names.push_back(block.name);
  return names;
}

std::vector<size_t> possible_places(const ModelBlocks& model) {
  std::vector<size_t> places;
  for (size_t place = 1; place < model.blocks.size(); ++place) {
    if (cut_obstacle(model, place).empty()) places.push_back(place);
  }
  return places;
}

// "cut before 'a' or 'b'": the possible cuts next to `place`.
std::string nearby_cuts(const ModelBlocks& model, size_t place) {
  const std::vector<size_t> possible = possible_places(model);
  const auto after = std::upper_bound(possible.begin(), possible.end(), place);
  std::vector<std::string> names;
  if (after != possible.begin()) names.push_back("'" + model.blocks[*(after - 1)].name + "'");
  if (after != possible.end()) names.push_back("'" + model.blocks[*after].name + "'");
  return "cut before " + join(names, " or ");
}

std::string stages_problem(const ModelBlocks& model, int64_t stages) {
  const size_t blocks = model.blocks.size();
  if (stages <= 1) return "";
  if (blocks <= 1) {
    return fmt::format(
        "[plan] parallel.pipeline is {}, and the model is one block, which stages cannot share; "
        "call run_block for each of its parts, or drop parallel.pipeline",
        stages);
  }
  const auto most = static_cast<int64_t>(possible_places(model).size()) + 1;
  if (stages <= most) return "";
  if (most == 1) {
    return fmt::format(
        "[plan] parallel.pipeline is {}, and the model cannot be cut: not before '{}', because {}; "
        "drop parallel.pipeline",
        stages, model.blocks[1].name, cut_obstacle(model, 1));
  }
  const std::string where = most == static_cast<int64_t>(blocks)
                                ? ""
                                : fmt::format(", which can be cut at {} places", most - 1);
  return fmt::format(
      "[plan] parallel.pipeline is {}, and the model has {} blocks{}; set it to {}{}", stages,
      blocks, where, most, most > 2 ? " or less" : "");
}

std::string name_problem(const ModelBlocks& model, const std::string& name, size_t last,
                         const std::string& last_name) {
  const std::vector<std::string> names = block_names(model);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    const std::string near = nearest(name, names);
    return fmt::format(
        "[plan] parallel.cut_at: the model has no block '{}'; {}", name,
        near.empty() ? "its blocks are " + join(names) : "did you mean '" + near + "'?");
  }
  const auto place = static_cast<size_t>(found - names.begin());
  if (place == 0) {
    return fmt::format(
        "[plan] parallel.cut_at: '{}' is the first block, and a stage before it would have none; "
        "{}",
        name, nearby_cuts(model, 0));
  }
  if (name == last_name) {
    return fmt::format("[plan] parallel.cut_at names '{}' twice; name each stage once", name);
  }
  if (place < last) {
    return fmt::format(
        "[plan] parallel.cut_at: '{}' comes before '{}' in the model; name the blocks in the "
        "model's order",
        name, last_name);
  }
  const std::string obstacle = cut_obstacle(model, place);
  if (obstacle.empty()) return "";
  return fmt::format("[plan] parallel.cut_at: no cut before '{}' is possible, because {}; {}", name,
                     obstacle, nearby_cuts(model, place));
}

double work_of(const StageCost& cost) { return cost.work(); }
double bytes_of(const StageCost& cost) { return static_cast<double>(cost.bytes); }

}  // namespace

std::vector<StageCost> stage_costs(const ModelBlocks& model, const PipelineCut& cut,
                                   const CutOptions& options) {
  std::vector<StageCost> costs;
  for (size_t stage = 0; stage <= cut.size(); ++stage) {
    const size_t begin = stage == 0 ? 0 : cut[stage - 1];
    const size_t end = stage == cut.size() ? model.blocks.size() : cut[stage];
    GrowingStage growing(model, options, stage, begin);
    StageCost cost{begin, end};
    for (size_t block = begin; block < end; ++block) cost = growing.add_block();
    costs.push_back(cost);
  }
  return costs;
}

std::string cut_obstacle(const ModelBlocks& model, size_t place) {
  if (place == 0) return "no block comes before it";
  const std::string& name = model.blocks[place].name;
  const auto runs = std::count_if(model.blocks.begin(), model.blocks.end(),
                                  [&](const BlockCost& block) { return block.name == name; });
  if (runs > 1) return fmt::format("it runs {} times in a forward", runs);
  return model.blocks[place - 1].obstacle;
}

std::optional<PipelineCut> cut_balanced(const ModelBlocks& model, const CutOptions& options) {
  return CutSearch(model, options, work_of, options.limit_bytes).best();
}

std::optional<PipelineCut> cut_smallest(const ModelBlocks& model, const CutOptions& options) {
  return CutSearch(model, options, bytes_of, /*limit=*/0).best();
}

std::string check_cut(const ModelBlocks& model, int64_t stages,
                      const std::vector<std::string>& cut_at) {
  if (std::string problem = stages_problem(model, stages); !problem.empty()) return problem;
  size_t last = 0;
  std::string last_name;
  for (const std::string& name : cut_at) {
    if (std::string problem = name_problem(model, name, last, last_name); !problem.empty()) {
      return problem;
    }
    last = cut_named(model, {name}).front();
    last_name = name;
  }
  const auto named = static_cast<int64_t>(cut_at.size());
  if (named == 0 || named == stages - 1) return "";
  return fmt::format(
      "[plan] parallel.cut_at names the first blocks of {} later stages, and parallel.pipeline = "
      "{} has {}; set parallel.pipeline = {}, or let the plan cut (--set 'parallel.cut_at=[]')",
      named, stages, stages - 1, named + 1);
}

PipelineCut cut_named(const ModelBlocks& model, const std::vector<std::string>& cut_at) {
  const std::vector<std::string> names = block_names(model);
  PipelineCut cut;
  for (const std::string& name : cut_at) {
    cut.push_back(static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin()));
  }
  return cut;
}

}  // namespace tanren
