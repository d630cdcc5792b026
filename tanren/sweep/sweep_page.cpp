#include "tanren/sweep/sweep_page.h"

#include "tanren/base/json_text.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/page/report_page.h"
#include "tanren/page/table.h"
#include "tanren/sweep/confirmation.h"
#include "tanren/sweep/leaderboard.h"
#include "tanren/sweep/page_trials.h"
#include "tanren/sweep/sweep_plots.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

namespace tanren {

namespace {

constexpr size_t kMostPoints = 100;            // of a curve
constexpr size_t kMostTableBytes = 600 << 10;  // of the rows' texts
constexpr size_t kMostValueBytes = 80;         // of one value

// Names the trial under the pointer, and marks it in all plots.
constexpr std::string_view kSweepScript = R"js(
(function () {
  var holder = document.getElementById('sweep-data'), tip = document.getElementById('tip');
  if (!holder) return;
  var data = JSON.parse(holder.textContent), trials = {}, shown = null;
  data.trials.forEach(function (trial) { trials[trial.trial] = trial; });
  tip.style.whiteSpace = 'pre';
  function number(value) { return value === null ? 'no value' : String(value); }
  function at(x, y) {  // thin lines are hard to hit
    var ways = [[0, 0], [0, -3], [0, 3], [-3, 0], [3, 0]];
    for (var i = 0; i < ways.length; i++) {
      var found = document.elementFromPoint(x + ways[i][0], y + ways[i][1]);
      var mark = found && found.closest && found.closest('[data-trial]');
      if (mark) return mark.getAttribute('data-trial');
    }
    return null;
  }
  function paint(id, color) {
    document.querySelectorAll('[data-trial="' + id + '"]').forEach(function (each) {
      each.style.stroke = color;
    });
  }
  function mark(id) {
    if (id === shown) return;
    if (shown !== null) paint(shown, '');
    if (id !== null) paint(id, '#f0f');
    shown = id;
  }
  document.addEventListener('mousemove', function (event) {
    var id = at(event.clientX, event.clientY), trial = id === null ? null : trials[id];
    mark(trial ? id : null);
    if (!trial) { tip.style.display = 'none'; return; }
    var lines = ['trial ' + id + ': ' + trial.state,
                 data.metric + ' ' + number(trial.value) + ' at step ' + trial.step];
    Object.keys(trial.values).forEach(function (key) {
      lines.push(key + ' = ' + trial.values[key]);
    });
    if (trial.fork_of !== undefined) {
      lines.push('from trial ' + trial.fork_of + ' at step ' + trial.fork_step);
    }
    tip.textContent = lines.join('\n');
    tip.style.display = 'block';
    var x = event.clientX + 14, y = event.clientY + 14;  // on the pointer's other side at the edges
    if (x + tip.offsetWidth > window.innerWidth) x = event.clientX - 14 - tip.offsetWidth;
    if (y + tip.offsetHeight > window.innerHeight) y = event.clientY - 14 - tip.offsetHeight;
    tip.style.left = Math.max(x, 0) + 'px';
    tip.style.top = Math.max(y, 0) + 'px';
  });
})();
)js";

std::string paragraph(const std::string& text) { return "<p>" + escaped(text) + "</p>\n"; }

std::string scheduler_text(const StudyOptions& options) {
  if (options.scheduler == "asha") {
    return fmt::format("asha: rungs from {} steps on, one of {} goes on", options.first_rung,
                       options.reduction);
  }
  if (options.scheduler == "pbt") {
    return fmt::format("pbt: exchanges every {} steps", options.interval);
  }
  if (options.scheduler == "external") return "another program decides which go on";
  return "each runs to its end";
}

std::vector<std::string> subject_of(const Study& study, const SweepPageFacts& facts) {
  const StudyOptions& options = study.options();
  std::vector<std::string> lines = {
      fmt::format("{} trials by {}, the {} the better; sampler {}; {}", options.trials,
                  page_text(options.metric), options.lower_is_better ? "lower" : "higher",
                  options.sampler, scheduler_text(options)),
      counts_text(study)};
  if (!study.is_done()) lines.back() += "; not done yet: the same command goes on";
  if (facts.seconds) {
    lines.push_back(fmt::format("the sweep ran {}", seconds_text(*facts.seconds)));
    if (facts.cpu_seconds) {
      lines.back() +=
          fmt::format("; its trials used {} of processor time", seconds_text(*facts.cpu_seconds));
    }
  }
  return lines;
}

std::string best_section(const Study& study, const SweepPageFacts& facts) {
  std::string html = "<section><h2>Best values</h2>\n";
  const TrialRecord* best = study.best();
  if (best == nullptr) {
    return html + paragraph("No trial has a value yet.") + "</section>\n";
  }
  html += paragraph(fmt::format("Trial {:04}: {} {} at step {} ({}).", best->id,
                                page_text(study.options().metric), to_text(*best->value),
                                best->step, state_text(study, *best)));
  for (const std::string& text : {facts.best_sets, facts.best_toml}) {
    if (!text.empty()) html += "<pre>" + escaped(utf8_text(text)) + "</pre>\n";
  }
  return html + "</section>\n";
}

// A row for each seed: the file's value, and each trial's with what it is above the file's.
Table seed_table(const Study& study) {
  const std::vector<Confirmed>& ends = study.confirmed();
  const std::vector<PairedDifference> differences = paired_differences(study);
  Table table{.title = page_text(study.options().metric) + " by seed",
              .head = {"seed", "the file"}};
  for (const PairedDifference& one : differences) {
    table.head.push_back(fmt::format("trial {:04}", one.trial));
  }
  std::set<int64_t> seeds;
  for (const Confirmed& end : ends) seeds.insert(end.run.seed);
  for (const int64_t seed : seeds) {
    const Confirmed* file = last_end_of(ends, {.trial = {}, .seed = seed});
    const auto text_of_end = [&](const Confirmed* end) -> std::string {
      if (end == nullptr || is_due(end)) return "-";
      if (!end->value) return to_text(end->outcome);
      std::string value = short_text(*end->value, 6);
      if (end == file || file == nullptr || !file->value) return value;
      return value + fmt::format(" ({:+.3g})", *end->value - *file->value);
    };
    std::vector<std::string> row = {to_text(seed), text_of_end(file)};
    for (const PairedDifference& one : differences) {
      row.push_back(text_of_end(last_end_of(ends, {.trial = one.trial, .seed = seed})));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string confirmation_section(const Study& study) {
  if (study.confirmed().empty()) return "";
  std::string html = "<section><h2>The best with other seeds</h2>\n";
  for (const std::string& line : confirmation_lines(study)) html += paragraph(page_text(line));
  return html + "</section>\n" + html_of(seed_table(study));
}

Table space_table(const Space& space) {
  Table table{.title = "Space", .head = {"key", "values", "scale", "only where"}};
  table.texts = table.head.size();
  for (size_t i = 0; i < space.size(); ++i) {
    const DimensionOptions& one = space.dimensions()[i];
    std::string values = page_text(join(one.values));
    if (space.is_range(i)) {
      values = short_text(*one.low, 15) + " … " + short_text(*one.high, 15) +
               (one.whole ? ", whole" : "");
    }
    table.rows.push_back({page_text(one.key), values, space.is_range(i) ? one.scale : "choices",
                          page_text(one.when)});
  }
  return table;
}

std::string lineage_text(const TrialRecord& record) {
  if (!record.fork_of) return "";
  return fmt::format("trial {:04} at step {}", *record.fork_of, record.fork_step);
}

Table trial_table(const Study& study, const std::vector<const TrialRecord*>& trials) {
  const auto& all = study.records();
  const bool has_forks = std::any_of(all.begin(), all.end(),
                                     [](const auto& record) { return record.fork_of.has_value(); });
  Table table{.title = "Trials"};
  table.head = {"trial", "state", "values"};
  if (has_forks) table.head.emplace_back("from");
  table.texts = table.head.size();
  for (const char* name : {"metric", "step", "remark"}) table.head.emplace_back(name);
  table.head[table.texts] = page_text(study.options().metric);
  table.remarks = true;
  size_t bytes = 0;
  for (const TrialRecord* record : trials) {
    const TrialRecord& own = answering(study, *record);
    std::vector<std::string> values;
    for (const auto& [key, value] : record->values) {
      values.push_back(page_text(key) + "=" + page_text(value, kMostValueBytes));
    }
    const std::string remark =
        record->same_as ? fmt::format("as trial {:04}", *record->same_as) : page_text(own.reason);
    std::vector<std::string> row = {fmt::format("{:04}", record->id), state_text(study, *record),
                                    join(values, " ")};
    if (has_forks) row.push_back(lineage_text(*record));
    for (const std::string& cell :
         {own.value ? short_text(*own.value, 6) : "-", to_text(own.step), remark}) {
      row.push_back(cell);
    }
    for (const std::string& cell : row) bytes += cell.size();
    if (bytes > kMostTableBytes) break;
    table.rows.push_back(std::move(row));
  }
  if (table.rows.size() < all.size()) {
    table.note = fmt::format(
        "{} of {} trials: the best, and every so many of the others. leaderboard.txt has all.",
        table.rows.size(), all.size());
  }
  return table;
}

const Evaluations& evaluations_of_trial(const TrialRecord& record, const SweepPageFacts& facts) {
  const auto log = facts.logs.find(record.id);
  return log == facts.logs.end() || log->second.empty() ? record.metrics : log->second;
}

std::vector<TrialCurve> curves_of(const Study& study, const SweepPageFacts& facts) {
  std::vector<TrialCurve> curves;
  for (const TrialRecord* record : curve_trials(study)) {
    const Evaluations& all = evaluations_of_trial(*record, facts);
    TrialCurve curve{record, thinned(all, kMostPoints, study.options().lower_is_better), {}};
    if (record->fork_of) {
      const auto& source = study.records()[static_cast<size_t>(*record->fork_of)];
      for (const auto& point : evaluations_of_trial(source, facts)) {
        if (point.first == record->fork_step) curve.fork_of = point;
      }
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

// For the script, and for programs that read the page.
std::string data_of(const Study& study, const std::vector<const TrialRecord*>& trials,
                    const std::vector<TrialCurve>& curves) {
  std::map<int64_t, const TrialCurve*> curve_of;
  for (const TrialCurve& curve : curves) curve_of[curve.record->id] = &curve;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const TrialRecord* record : trials) {
    const TrialRecord& own = answering(study, *record);
    nlohmann::ordered_json values = nlohmann::ordered_json::object();
    for (const auto& [key, value] : record->values) {
      values[page_text(key)] = page_text(value, kMostValueBytes);
    }
    nlohmann::ordered_json one = {
        {"trial", record->id},
        {"state", state_text(study, *record)},
        {"value", own.value ? nlohmann::ordered_json(*own.value) : nlohmann::ordered_json()},
        {"step", own.step},
        {"values", std::move(values)}};
    if (record->fork_of) one["fork_of"] = *record->fork_of;
    if (record->fork_of) one["fork_step"] = record->fork_step;
    const auto curve = curve_of.find(record->id);
    if (curve != curve_of.end()) one["metrics"] = curve->second->evaluations;
    all.push_back(std::move(one));
  }
  const nlohmann::ordered_json data = {{"metric", page_text(study.options().metric)},
                                       {"trials", std::move(all)}};
  return json_element("sweep-data", json_text(data));
}

}  // namespace

std::string sweep_page(const Study& study, const SweepPageFacts& facts) {
  const std::string title = "Sweep " + page_text(facts.name);
  std::string html = page_head(title) + "<h1>" + escaped(title) + "</h1>\n<p class=\"subject\">";
  for (const auto& line : subject_of(study, facts)) html += escaped(line) + "<br>\n";
  html += "</p>\n" + best_section(study, facts) + confirmation_section(study) +
          html_of(space_table(study.space()));
  const std::vector<TrialCurve> curves = curves_of(study, facts);
  const std::string plot = curve_plot(study, curves);
  html += "<section><h2>Learning curves</h2>\n";
  html += (plot.empty() ? paragraph("No trial has an evaluation yet.") : plot) + "</section>\n";
  const std::vector<const TrialRecord*> trials = shown_trials(study);
  html +=
      "<section><h2>" + escaped(page_text(study.options().metric)) + " over each dimension</h2>\n";
  std::string plots;
  for (size_t i = 0; i < study.space().size(); ++i) plots += dimension_plot(study, trials, i);
  if (plots.empty()) {
    html += paragraph("No trial has a value yet.");
  } else {
    html +=
        "<p class=\"note\">A dot for each trial, at the step that it reached; crosses: trials "
        "without a value. Ringed: the best.</p>\n" +
        look_legend(study, trials) + plots;
  }
  return html + "</section>\n" + html_of(trial_table(study, trials)) +
         data_of(study, trials, curves) + page_end(kSweepScript);
}

}  // namespace tanren
