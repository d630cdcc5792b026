// tanren predict after it was ended at any moment, in unusual folders and on pipes. Also which
// files it never overwrites.
#include "tests/predict/predict_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The address sanitizer must be the first library that is loaded.
#ifdef __SANITIZE_ADDRESS__
#define TANREN_PREDICT_NEEDS_PRELOAD \
  GTEST_SKIP() << "nothing can be preloaded before the address sanitizer"
#else
#define TANREN_PREDICT_NEEDS_PRELOAD static_cast<void>(0)
#endif

const std::string kFile = "new.predictions.csv";
const std::string kPart = kFile + ".partial";

class PredictGoesOn : public PredictFiles {
 protected:
  // Leaves a part of the rows, as on a full disk.
  void leave_part(const std::string& source, int blocks) const {
    const auto full = shell("ulimit -f " + std::to_string(blocks) + "; trap '' XFSZ; exec " +
                                TANREN_BINARY + " predict out " + source,
                            folder_.path());
    ASSERT_EQ(full.code, 2) << full.output;
    ASSERT_TRUE(exists(kPart));
  }
};

TEST_F(PredictGoesOn, where_the_part_alone_was_removed) {
  train("run.toml");
  folder_.file("new.csv", new_rows(40000));
  expect("predict out new.csv --quiet --out whole.csv", 0);
  leave_part("new.csv", 320);
  expect("predict out new.csv --set predict.scores=all", 2,
         {kPart + " was begun with other settings; remove it and " + kPart + ".json"});
  fs::remove(at(kPart));
  expect("predict out new.csv", 0, {kFile + ": 40000 rows, by"});
  EXPECT_EQ(read(kFile), read("whole.csv"));
  EXPECT_FALSE(exists(kPart + ".json"));
}

// Also tests file systems without renameat2's RENAME_NOREPLACE, and those that have no links
// either.
TEST_F(PredictGoesOn, killed_at_any_change_of_the_folder_and_with_the_file_moved_away) {
  TANREN_PREDICT_NEEDS_PRELOAD;
  train("run.toml");
  folder_.file("new.csv", new_rows(40));
  const std::string command = "predict out new.csv --quiet --set run.threads=1";
  expect(command + " --out whole.csv", 0);
  const std::string whole = read("whole.csv");
  for (const std::string lacks :
       {"", "POINTS_NO_NOREPLACE=1 ", "POINTS_NO_NOREPLACE=1 POINTS_NO_LINK=1 "}) {
    const auto go = [&](const std::string& points) {
      return shell(lacks + points + " " + forked_tanren() + " " + command, folder_.path());
    };
    for (const std::string& old : {std::string("count"), kFile}) fs::remove(at(old));
    const auto counted = go("POINTS_COUNT=count");
    ASSERT_EQ(counted.code, 0) << counted.output;
    EXPECT_EQ(read(kFile), whole);
    const std::string points = read("count");
    const size_t calls = points.size(), placed = points.find('x') + 1;  // renameat2, at the end
    ASSERT_GT(placed, 5u);
    int64_t moved = 0;
    // The moments before the file is put in its place are the same on every file system.
    for (size_t call = lacks.empty() ? 1 : placed; call <= calls; ++call) {
      fs::remove(at(kFile));
      fs::remove(at("moved.csv"));
      // The number of calls may differ by a save.
      const auto killed = go("POINTS_AT=" + std::to_string(call));
      EXPECT_TRUE(killed.code == 128 + SIGKILL || killed.code == 0) << killed.output;
      if (exists(kFile)) {
        EXPECT_EQ(read(kFile), whole);
        fs::rename(at(kFile), at("moved.csv"));
        ++moved;
      }
      const auto again = go("");
      EXPECT_EQ(again.code, 0) << lacks << "call " << call << ": " << again.output;
      EXPECT_EQ(read(kFile), whole);
      EXPECT_FALSE(exists(kPart)) << lacks << "call " << call;
      EXPECT_FALSE(exists(kPart + ".json")) << lacks << "call " << call;
      if (exists("moved.csv")) {
        EXPECT_EQ(read("moved.csv"), whole);
      }
    }
    EXPECT_GT(moved, 0);
  }
}

TEST_F(PredictGoesOn, on_ranks_that_find_other_rows_is_refused_by_all) {
  train("run.toml");
  folder_.file("new.csv", new_rows(40000));
  leave_part("new.csv", 900);
  for (const std::string rank : {"0", "1"}) fs::create_directories(at(rank));
  fs::rename(at(kPart), at("0/" + kPart));
  fs::rename(at(kPart + ".json"), at("0/" + kPart + ".json"));
  fs::rename(at("new.csv"), at("0/new.csv"));
  const std::string part = read("0/" + kPart);
  // More rows than a rank reads between two exchanges.
  ASSERT_GT(std::count(part.begin(), part.end(), '\n'), 4097);
  folder_.file("1/new.csv", new_rows(100));
  const auto result =
      shell("timeout 120 " TANREN_BINARY " launch -n 2 -- sh -c 'cd $RANK && exec " TANREN_BINARY
            " predict ../out new.csv'",
            folder_.path());
  EXPECT_EQ(result.code, 2) << result.output;
  TANREN_EXPECT_CONTAINS(result.output,
                         "rank 1 has done rows in SOURCE: 100, rank 0 has done rows");
  EXPECT_EQ(read("0/" + kPart), part);
}

// Issue 26: such a row ended the command, on rank 0 alone.
TEST_F(PredictGoesOn, over_a_row_with_a_column_of_its_own_where_broken_ones_are_skipped) {
  train("run.toml");
  folder_.file("new.jsonl",
               "{\"a\": 1, \"b\": 2}\n{\"a\": 3, \"b\": 4, \"c\": 5}\n{\"a\": 6, \"b\": 7}\n");
  expect("predict out new.jsonl --out one.csv", 2,
         {"new.jsonl:2: has \"c\", which the first row lacks",
          "predict.broken = \"skip\" leaves a null in its place"});
  EXPECT_EQ(lines_in("one.csv.partial"), 2);
  expect("launch -n 2 predict out new.jsonl --out two.csv", 2, {"new.jsonl:2: has \"c\""});
  const std::string skip = "predict out new.jsonl --set predict.broken=skip";
  expect(skip, 0, {"new.predictions.csv: 3 rows, 1 of them broken, without a prediction"});
  const Table table = table_of(read("new.predictions.csv"));
  ASSERT_EQ(table.size(), 4u);
  EXPECT_EQ(table[0], (std::vector<std::string>{"a", "b", "label", "score"}));
  EXPECT_EQ(table[2], (std::vector<std::string>{"3", "4", "", ""}));
  EXPECT_NE(table[3][2], "");
  expect("launch -n 2 " + skip + " --quiet --out both.csv", 0);
  EXPECT_EQ(read("both.csv"), read("new.predictions.csv"));
}

// Issue 26: rows of <(zcat new.csv.gz) went to /dev/fd/63.predictions.csv.
TEST_F(PredictGoesOn, from_a_pipe_with_a_path_to_standard_output) {
  train("run.toml");
  folder_.file("new.csv", new_rows(30));
  expect("predict out new.csv --quiet", 0);
  ASSERT_EQ(::mkfifo(at("pipe.csv").c_str(), 0600), 0);
  const auto piped =
      shell("cat new.csv | " + forked_tanren() + " predict out /dev/stdin --quiet", folder_.path());
  EXPECT_EQ(piped.code, 0) << piped.output;
  EXPECT_EQ(piped.output, read(kFile));
  const auto named =
      shell("cat new.csv >pipe.csv & exec " + forked_tanren() + " predict out pipe.csv --quiet",
            folder_.path());
  EXPECT_EQ(named.code, 0) << named.output;
  EXPECT_EQ(named.output, read(kFile));
  EXPECT_FALSE(exists("pipe.predictions.csv"));
}

// Issue 26: the first answers came after thousands of rows.
TEST_F(PredictGoesOn, with_each_row_of_a_pipe_as_it_comes) {
  train("run.toml");
  ASSERT_EQ(::mkfifo(at("log.csv").c_str(), 0600), 0);
  const int held = ::open(at("log.csv").c_str(), O_RDWR | O_CLOEXEC);
  Child child({"/bin/sh", "-c",
               "cd '" + folder_.path().string() + "' && exec " + TANREN_BINARY +
                   " predict out log.csv --quiet"});
  for (const std::string row : {"id,b,a\nr0,0.5,1\n", "r1,0.5,2\n", "r2,0.5,3\n"}) {
    ASSERT_EQ(::write(held, row.data(), row.size()), std::ssize(row));
    const std::string begin = row.substr(row.find('r')).substr(0, 3);
    EXPECT_TRUE(child.await("\n" + begin, seconds(60))) << child.text();
  }
  ::close(held);
  EXPECT_EQ(child.ended(seconds(60)), 0) << child.text();
}

// Issue 26: "auto" may choose another precision at each start.
TEST_F(PredictGoesOn, only_in_the_precision_that_its_rows_were_computed_in) {
  train("run.toml");
  folder_.file("new.csv", new_rows(40000));
  leave_part("new.csv", 320);
  const std::string state = read(kPart + ".json");
  const std::string said = "\"computed\":\"cpu,fp32,";
  ASSERT_NE(state.find(said), std::string::npos) << state;
  std::string other = state;
  folder_.file(kPart + ".json",
               other.replace(state.find(said), said.size(), "\"computed\":\"cpu,bf16,"));
  const std::string part = read(kPart);
  expect("predict out new.csv", 2,
         {kPart + " was begun with other settings (cpu,bf16,", "now cpu,fp32,",
          "or begin again with --force"});
  EXPECT_EQ(read(kPart), part);
  folder_.file(kPart + ".json", state);
  expect("predict out new.csv", 0, {"went on after row"});
}

// Issue 26: if the state file named too many rows, predict counted up to them, even after the last
// row.
TEST_F(PredictGoesOn, never_from_more_rows_than_there_are) {
  train("run.toml");
  folder_.file("new.csv", new_rows(40000));
  leave_part("new.csv", 320);
  std::string state = read(kPart + ".json");
  const size_t at_rows = state.find("\"rows\":") + 7;
  state.replace(at_rows, state.find(',', at_rows) - at_rows, "1000000000000000");
  folder_.file(kPart + ".json", state);
  expect("predict out new.csv", 2, {"was begun from other rows than those of new.csv"});
}

TEST_F(PredictGoesOn, ends_at_a_signal_while_it_waits_for_a_pipe) {
  train("run.toml");
  for (const std::string name : {"rows.csv", "rows.jsonl"}) {
    ASSERT_EQ(::mkfifo(at(name).c_str(), 0600), 0);
    for (const bool has_writer : {false, true}) {
      const int held = has_writer ? ::open(at(name).c_str(), O_RDWR | O_CLOEXEC) : -1;
      const std::string rows = name == "rows.csv" ? new_rows(3) : "{\"a\": 1, \"b\": 2}\n";
      if (has_writer) {
        ASSERT_EQ(::write(held, rows.data(), rows.size()), std::ssize(rows));
      }
      Child child({"/bin/sh", "-c",
                   "cd '" + folder_.path().string() + "' && exec " + TANREN_BINARY +
                       " predict out " + name + " --out p.csv"});
      EXPECT_TRUE(comes_true([&] { return has_open(child.pid(), name); })) << child.text();
      EXPECT_TRUE(!has_writer || comes_true([&] { return unread(held) == 0; })) << child.text();
      EXPECT_EQ(child.ended(milliseconds(500)), -1) << child.text();
      child.signal(SIGTERM);
      EXPECT_EQ(child.ended(seconds(10)), 130) << child.text();
      if (has_writer) ::close(held);
      EXPECT_FALSE(exists("p.csv"));
      EXPECT_EQ(exists("p.csv.partial"), has_writer);
      if (!has_writer) {
        TANREN_EXPECT_CONTAINS(child.text(), "stopped before the first row; nothing was written");
        continue;
      }
      // Rows read from a pipe cannot be read again, so they are saved (issue 26).
      const int count = name == "rows.csv" ? 3 : 1;
      EXPECT_EQ(lines_in("p.csv.partial"), 1 + count) << child.text();
      TANREN_EXPECT_CONTAINS(child.text(),
                             count == 1 ? "p.csv.partial: 1 row," : "p.csv.partial: 3 rows,");
      for (const char* part : {"p.csv.partial", "p.csv.partial.json"}) fs::remove(at(part));
    }
  }
  // Rows from a pipe give the same output as rows from a file.
  folder_.file("new.csv", new_rows(3000));
  expect("predict out new.csv --quiet --out file.csv", 0);
  const auto piped = shell("cat new.csv >rows.csv & " + forked_tanren() +
                               " predict out rows.csv --quiet --out piped.csv; code=$?; wait; "
                               "exit $code",
                           folder_.path());
  EXPECT_EQ(piped.code, 0) << piped.output;
  EXPECT_EQ(read("piped.csv"), read("file.csv"));
}

TEST_F(PredictGoesOn, with_images_that_were_changed_is_refused_also_if_their_sizes_are_the_same) {
  make_images();
  train("images.toml");
  damage_image("eval/dog/2.png");
  expect("predict out eval", 2, {"eval/dog/2.png"});
  ASSERT_TRUE(exists("eval.predictions.csv.partial"));
  const auto changed = fs::last_write_time(at("eval/cat/0.png"));
  fs::last_write_time(at("eval/cat/0.png"), changed + std::chrono::nanoseconds(1000));
  expect("predict out eval", 2, {"was begun from other rows than those of eval"});
  fs::last_write_time(at("eval/cat/0.png"), changed);
  expect("predict out eval --set predict.broken=skip", 0, {"6 rows (went on after row 5)"});
}

TEST_F(PredictGoesOn, never_with_an_evaluation_that_writes_over_what_it_reads) {
  train("run.toml");
  fs::copy_file(at("out/model.tanren.safetensors"), at("alone.safetensors"));
  folder_.file("more.csv", rows(5));
  const std::string log = read("out/log.jsonl"), train_rows = read("train.csv"),
                    eval_rows = read("eval.csv"), more = read("more.csv");
  for (const std::string force : {"", " --force"}) {
    const std::string end = force + " --predictions ";
    expect("eval out" + end + "eval.csv", 2,
           {"[eval] --predictions eval.csv belongs to the data", "name another file"});
    expect("eval out" + end + "./train.csv", 2, {"belongs to the data of the model's run"});
    expect("eval out" + end + "out/log.jsonl", 2, {"out/log.jsonl is the model"});
    expect("eval out more.csv" + end + "more.csv", 2, {"more.csv is read by this evaluation"});
    expect("eval alone.safetensors more.csv" + end + "more.csv", 2,
           {"more.csv is read by this evaluation"});
  }
  EXPECT_EQ(read("out/log.jsonl"), log);
  EXPECT_EQ(read("train.csv"), train_rows);
  EXPECT_EQ(read("eval.csv"), eval_rows);
  EXPECT_EQ(read("more.csv"), more);
  // A table of an earlier evaluation may be replaced, also beside the run's files.
  expect("eval out --quiet --predictions out/p.csv", 0);
  expect("eval out --quiet --force --predictions out/p.csv", 0);
  // The run's record of incidents is not overwritten (issue 26).
  folder_.file("out/incidents.jsonl", "{}\n");
  expect("eval out --force --predictions out/incidents.jsonl", 2, {"incidents.jsonl is the model"});
  expect("predict out more.csv --force --out out/incidents.jsonl", 2, {"is the model"});
  EXPECT_EQ(read("out/incidents.jsonl"), "{}\n");
}

TEST_F(PredictGoesOn, with_tables_only_where_the_data_of_training_named_their_columns) {
  folder_.file("twice.csv", "x,x,label\n1,2,0\n3,4,1\n5,6,2\n7,8,0\n");
  train("run.toml", " --set data.train.path=twice.csv --set data.eval.path=twice.csv");
  folder_.file("new.csv", "x,y\n1,2\n");
  expect("predict out new.csv", 2, {"trained on two columns that are called \"x\""});
  EXPECT_FALSE(exists(kFile));
  EXPECT_FALSE(exists(kPart));
}

}  // namespace
}  // namespace tanren::testing
