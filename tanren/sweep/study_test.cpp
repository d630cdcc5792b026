#include "tanren/sweep/study.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/base/text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

Space rates() {
  return Space({{.key = "rate", .low = 1e-3, .high = 1.0, .scale = "log", .points = 3},
                {.key = "width", .low = 1.0, .high = 2.0, .whole = true, .points = 2}});
}

// The metric of a trial at a step: it falls with the steps, to a floor by the values.
double metric_of(const Trial& trial, int64_t step) {
  const double rate = std::log10(trial.number("rate")) + 2;
  return rate * rate + trial.number("width") / static_cast<double>(step + 1);
}

// Does the work, with a report halfway.
void run_trial(Study& study, const Trial& trial) {
  const int64_t middle = (trial.begin + trial.until) / 2;
  study.report(trial, middle, metric_of(trial, middle));
  study.tell(trial, metric_of(trial, trial.until));
}

void run_all(Study& study) {
  while (const auto trial = study.ask()) run_trial(study, *trial);
}

std::vector<StudyOptions> kinds_of_studies() {
  return {{.sampler = "grid", .trials = 6, .steps = 8},
          {.sampler = "random",
           .scheduler = "asha",
           .trials = 8,
           .steps = 8,
           .first_rung = 2,
           .reduction = 2},
          {.sampler = "tpe", .trials = 12, .steps = 8},
          {.sampler = "tpe", .scheduler = "asha", .trials = 12, .steps = 8, .first_rung = 2},
          {.sampler = "random", .scheduler = "pbt", .trials = 4, .steps = 9, .interval = 3}};
}

class StudyJournal : public ::testing::Test {
 protected:
  StudyOptions kept(StudyOptions options) const {
    options.journal = file_;
    return options;
  }
  testing::TemporaryFolder folder_;
  const fs::path file_ = folder_.path() / "journal.jsonl";
};

// The main guarantee of a journal: at whatever line the process ended, the study continues as if it
// had not ended.
TEST_F(StudyJournal, replayed_at_any_line_continues_as_if_it_had_never_ended) {
  for (const StudyOptions& options : kinds_of_studies()) {
    SCOPED_TRACE(options.sampler + " " + options.scheduler);
    fs::remove(file_);
    {
      Study study(rates(), kept(options));
      run_all(study);
      EXPECT_TRUE(study.is_done());
    }
    const std::string whole = read_file(file_);
    ASSERT_GT(std::count(whole.begin(), whole.end(), '\n'), 12);
    for (size_t end = 0; end != std::string::npos && end < whole.size();) {
      write_file(file_, whole.substr(0, end + 7));  // with the beginning of a torn line
      Study study(rates(), kept(options));
      run_all(study);
      ASSERT_EQ(read_file(file_), whole) << "after " << end << " bytes";
      end = whole.find('\n', end);
      if (end != std::string::npos) ++end;
    }
  }
}

TEST_F(StudyJournal, trials_that_ran_are_handed_out_first_by_number) {
  {
    Study study(rates(), kept({.sampler = "random", .trials = 4}));
    study.ask();
    const auto second = study.ask();
    study.ask();
    study.tell(*second, 1.0);
  }
  Study study(rates(), kept({.sampler = "random", .trials = 4}));
  std::vector<int64_t> ids;
  while (const auto trial = study.ask()) ids.push_back(trial->id);
  EXPECT_EQ(ids, (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(study.records()[1].value, 1.0);
}

TEST_F(StudyJournal, the_line_of_a_trial_is_there_before_the_trial) {
  Study study(rates(), kept({.sampler = "random", .trials = 2}));
  const auto trial = study.ask();
  ASSERT_TRUE(trial);
  TANREN_EXPECT_CONTAINS(read_file(file_),
                         "{\"start\":0,\"values\":{\"rate\":\"" + trial->text("rate") + "\"");
}

TEST_F(StudyJournal, another_study_on_the_same_file_is_refused_with_the_keys) {
  { const Study study(rates(), kept({.sampler = "random", .trials = 4, .seed = 1})); }
  const auto refused = [&](Space space, const StudyOptions& options) {
    return error_of<ConfigError>([&] { Study study(std::move(space), kept(options)); });
  };
  const std::string start = "[sweep] " + file_.string() + " is of ";
  EXPECT_EQ(refused(rates(), {.sampler = "tpe", .trials = 4, .seed = 2}),
            start +
                "another sweep (sampler: \"random\" → \"tpe\"; seed: 1 → 2); take those "
                "values, or another folder");
  TANREN_EXPECT_CONTAINS(
      refused(Space({{.key = "rate", .low = 1e-3, .high = 1.0, .scale = "log", .points = 3}}),
              {.sampler = "random", .trials = 4, .seed = 1}),
      "(space width: {\"key\":\"width\",");
  EXPECT_EQ(refused(rates(), {.sampler = "random", .trials = 3, .seed = 1}),
            start + "a sweep with trials 4, and now it is 3; it may only grow");
}

TEST_F(StudyJournal, trials_may_grow_and_do_not_shrink_again) {
  const auto options = [&](int64_t trials) {
    return kept({.sampler = "random", .trials = trials});
  };
  {
    Study study(rates(), options(2));
    run_all(study);
  }
  {
    Study study(rates(), options(4));
    run_all(study);
    EXPECT_EQ(study.records().size(), 4u);
  }
  { const Study same(rates(), options(4)); }
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { Study study(rates(), options(2)); }),
                         "trials 4, and now it is 2");
}

TEST_F(StudyJournal, a_line_that_is_not_of_the_study_is_told_with_its_number) {
  { const Study study(rates(), kept({.sampler = "random", .trials = 4})); }
  for (const auto& [line, what] : std::map<std::string, std::string>{
           {"{\"end\":3,\"step\":0,\"value\":1}", "trial 3 never started"},
           {"{\"start\":1,\"values\":{},\"until\":0}", "trial 1 starts where trial 0 is the next"},
           {"{\"start\":0,\"values\":{\"rate\":\"7\"},\"until\":0}", "rate=7 is not in the space"},
           {"{\"begin\":0}", "is none of start, report, resume, end, trials, confirm"},
           {"[1}", "is no JSON object"}}) {
    const std::string before = read_file(file_);
    Journal(file_).append(line, false);
    TANREN_EXPECT_CONTAINS(error_of<InputError>([&] {
                             Study study(rates(), kept({.sampler = "random", .trials = 4}));
                           }),
                           what);
    write_file(file_, before);
  }
}

TEST_F(StudyJournal, a_full_disk_starts_nothing_and_later_goes_on) {
  Study study(rates(), kept({.sampler = "random", .trials = 2}));
  {
    const testing::FullDiskScope full(fs::file_size(file_) + 3);
    error_of<RunError>([&] { study.ask(); });
  }
  EXPECT_TRUE(study.records().empty());
  run_all(study);
  EXPECT_EQ(study.records().size(), 2u);
}

TEST_F(StudyJournal, of_another_program_is_read_and_nothing_is_decided_here) {
  const StudyOptions options =
      kept({.sampler = "random", .scheduler = "external", .trials = 3, .steps = 8});
  const auto append = [&](const std::vector<std::string>& lines) {
    Journal journal(file_);
    for (const std::string& line : lines) journal.append(line, false);
  };
  {
    Study study(rates(), options);
    EXPECT_FALSE(study.ask());
    EXPECT_FALSE(study.is_done());
  }
  append(
      {R"({"start":0,"values":{"rate":"0.1","width":"2"},"until":8})",
       R"({"start":1,"values":{"rate":"5e-01","width":"1"},"until":8})",
       R"({"report":0,"step":4,"value":1})", R"({"report":1,"step":4,"value":2.0})",
       R"({"start":2,"values":{"rate":"0.12","width":"2"},"until":8,"fork_of":0,"replaces":1})"});
  {
    Study study(rates(), options);
    EXPECT_FALSE(study.ask());  // also nothing of what ran
    EXPECT_FALSE(study.is_done());
    ASSERT_EQ(study.records().size(), 3u);
    EXPECT_EQ(study.records()[0].state, TrialState::running);
    EXPECT_EQ(study.records()[1].outcome, TrialOutcome::stopped);
    EXPECT_EQ(study.records()[1].state, TrialState::ended);
    EXPECT_EQ(study.records()[1].value, 2.0);
    EXPECT_EQ(study.records()[2].fork_step, 4);
  }
  append({R"({"end":0,"step":8,"value":0.5})", R"({"end":2,"step":8,"value":0.7})"});
  // A fork is none of the three that begin.
  EXPECT_FALSE(Study(rates(), options).is_done());
  append({R"({"start":3,"values":{"rate":"0.7","width":"2"},"until":8})",
          R"({"end":3,"step":0,"outcome":"refused","reason":"needs\n3\u001b GiB"})"});
  const Study study(rates(), options);
  EXPECT_TRUE(study.is_done());
  EXPECT_EQ(study.best()->id, 0);
  EXPECT_EQ(study.records()[3].outcome, TrialOutcome::refused);
  EXPECT_EQ(study.records()[3].reason, "needs 3  GiB");
}

TEST_F(StudyJournal, has_a_long_reason_as_the_study_has_it) {
  const StudyOptions options = kept({.sampler = "random", .trials = 1});
  std::string before;
  {
    Study study(rates(), options);
    study.tell(*study.ask(), TrialOutcome::failed, std::string(250, 'x') + std::string(250, 'y'));
    before = study.records()[0].reason;
    EXPECT_GT(before.size(), 300u);
  }
  EXPECT_EQ(Study(rates(), options).records()[0].reason, before);
}

TEST(Study, refuses_what_cannot_be_a_study) {
  EXPECT_EQ(error_of<ConfigError>([] { Study study(rates(), {}); }),
            "[sweep] trials is 0, which stands for all points of a grid; set it");
  EXPECT_EQ(error_of<ConfigError>([] { Study study(Space(std::vector<DimensionOptions>{}), {}); }),
            "[sweep] the space has no dimension; add one");
  Study study(rates(), {.trials = 1});
  const auto trial = study.ask();
  study.tell(*trial, 1.0);
  EXPECT_EQ(error_of<ConfigError>([&] { study.tell(*trial, 1.0); }),
            "[sweep] trial 0 does not run; tell what ask() returned, and once");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { trial->number("wdth"); }),
                         "[sweep] trial 0 has no wdth");
}

TEST(Study, a_grid_starts_all_its_points_and_no_more) {
  Study study(rates(), {.sampler = "grid", .trials = 100});
  run_all(study);
  EXPECT_EQ(study.records().size(), 6u);
  Study all(rates(), {.sampler = "grid"});
  run_all(all);
  EXPECT_EQ(all.records().size(), 6u);
}

TEST(Study, the_same_values_twice_are_answered_by_the_first_trial) {
  Study study(Space({{.key = "kind", .values = {"a", "b", "c"}}}),
              {.sampler = "random", .trials = 20});
  int64_t runs = 0;
  while (const auto trial = study.ask()) {
    ++runs;
    study.tell(*trial, trial->text("kind") == "b" ? 1 : 2);
  }
  EXPECT_EQ(runs, 3);
  ASSERT_EQ(study.records().size(), 20u);
  for (const TrialRecord& record : study.records()) {
    if (!record.same_as) continue;
    EXPECT_EQ(study.records()[static_cast<size_t>(*record.same_as)].values, record.values);
    EXPECT_LT(*record.same_as, record.id);
  }
  EXPECT_EQ(study.best()->values, (TrialValues{{"kind", "b"}}));
}

TEST(Study, no_failure_ends_it_and_each_has_its_outcome) {
  Study study(rates(), {.sampler = "random", .trials = 4});
  std::vector<Trial> trials;
  while (const auto trial = study.ask()) trials.push_back(*trial);
  ASSERT_EQ(trials.size(), 4u);
  study.tell(trials[0], std::nan(""));
  study.tell(trials[1], TrialOutcome::crashed, "signal 11\nin a line");
  study.tell(trials[2], 0.5);
  EXPECT_FALSE(study.is_done());
  study.tell(trials[3], TrialOutcome::hung, "", 7);
  EXPECT_TRUE(study.is_done());
  const auto& records = study.records();
  EXPECT_EQ(records[0].outcome, TrialOutcome::diverged);
  EXPECT_EQ(records[1].outcome, TrialOutcome::crashed);
  EXPECT_EQ(records[1].reason, "signal 11 in a line");
  EXPECT_EQ(records[2].outcome, TrialOutcome::finished);
  EXPECT_EQ(records[3].outcome, TrialOutcome::hung);
  EXPECT_EQ(records[3].step, 7);
  EXPECT_EQ(study.best(), &records[2]);
  for (const char* name : {"finished", "too_large", "failed"}) {
    EXPECT_EQ(to_text(*trial_outcome(name)), name);
  }
  EXPECT_FALSE(trial_outcome("lost"));
}

TEST(Study, a_refused_trial_runs_once_more_alone_at_the_end) {
  Study study(rates(), {.sampler = "random", .trials = 3});
  const auto first = study.ask(), second = study.ask();
  study.tell(*first, TrialOutcome::refused, "needs 3 GiB");
  const auto third = study.ask();
  ASSERT_TRUE(third);
  EXPECT_EQ(third->id, 2);
  study.tell(*third, TrialOutcome::refused, "needs 4 GiB");
  EXPECT_FALSE(study.ask());  // the second still runs
  EXPECT_FALSE(study.is_done());
  study.tell(*second, 1.0);
  const auto again = study.ask();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->id, 0);
  EXPECT_TRUE(again->alone);
  EXPECT_FALSE(study.ask());
  study.tell(*again, TrialOutcome::refused, "needs 3 GiB");
  EXPECT_EQ(study.records()[0].outcome, TrialOutcome::too_large);
  study.tell(*study.ask(), 0.5);
  EXPECT_EQ(study.records()[2].outcome, TrialOutcome::finished);
  EXPECT_TRUE(study.is_done());
}

TEST(Study, a_promoted_trial_goes_on_from_its_rung) {
  Study study(rates(), {.sampler = "random",
                        .scheduler = "asha",
                        .trials = 2,
                        .steps = 8,
                        .first_rung = 2,
                        .reduction = 2});
  const auto first = study.ask();
  EXPECT_EQ(first->begin, 0);
  EXPECT_EQ(first->until, 2);
  study.tell(*first, 1.0);
  EXPECT_EQ(study.records()[0].state, TrialState::paused);
  study.tell(*study.ask(), 2.0);
  const auto promoted = study.ask();
  EXPECT_EQ(promoted->id, 0);
  EXPECT_EQ(promoted->begin, 2);
  EXPECT_EQ(promoted->until, 4);
  EXPECT_EQ(promoted->values, first->values);
  // The same result once more, late, is not that of the next rung.
  EXPECT_EQ(error_of<ConfigError>([&] { study.tell(*first, 1.0); }),
            "[sweep] trial 0 does not run; tell what ask() returned, and once");
  study.tell(*promoted, 0.5);
  EXPECT_EQ(study.records()[0].step, 4);
}

TEST(Study, a_fork_begins_at_its_source_with_changed_values_and_stops_the_one_it_replaces) {
  Study study(rates(),
              {.sampler = "random", .scheduler = "pbt", .trials = 2, .steps = 6, .interval = 3});
  const auto good = study.ask(), bad = study.ask();
  study.tell(*good, 1.0);
  study.tell(*bad, 2.0);
  const auto fork = study.ask();
  ASSERT_TRUE(fork);
  EXPECT_EQ(fork->id, 2);
  EXPECT_EQ(fork->fork_of, good->id);
  EXPECT_EQ(fork->fork_step, 3);
  EXPECT_EQ(fork->begin, 3);
  EXPECT_EQ(fork->until, 6);
  EXPECT_NE(fork->values, good->values);
  EXPECT_EQ(study.records()[1].outcome, TrialOutcome::stopped);
  EXPECT_EQ(study.records()[1].value, 2.0);
  const auto on = study.ask();
  EXPECT_EQ(on->id, good->id);
  EXPECT_FALSE(on->fork_of);
  study.tell(*on, 0.5);
  study.tell(*fork, 0.7);
  EXPECT_TRUE(study.is_done());
  EXPECT_EQ(study.best()->id, 0);
}

}  // namespace
}  // namespace tanren
