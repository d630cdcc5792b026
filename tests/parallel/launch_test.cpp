// `tanren launch` with small scripts as its ranks: their environment, whole labelled lines, which
// message comes last, signals, exit codes, and that no process survives, whichever process is
// killed.
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tests/parallel/launcher_process.h"
#include "tests/support/forked.h"
#include "tests/support/shell.h"
#include "tests/support/taken_port.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <regex>
#include <sstream>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// For sh: waits until all ranks have started.
const std::string kTogether =
    "touch at.$RANK; r=0\n"
    "while [ $r -lt $WORLD_SIZE ]; do [ -e at.$r ] && r=$((r + 1)) || sleep 0.01; done\n";

// Removes the first line, which a machine with fewer cores than ranks prints.
std::string without_cores_line(const std::string& text) {
  static const std::regex line("^\\[launch\\] [0-9]+ ranks share [^\n]*\n");
  return std::regex_replace(text, line, "");
}

class Launch : public ::testing::Test {
 protected:
  // Writes a program of `lines` for sh and returns its path.
  std::string program(const std::string& lines) const {
    std::string path = folder_.file("program", "#!/bin/sh\n" + lines + "\n");
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

  // The result of running the program of `lines` as `ranks` ranks.
  struct Result {
    int code = 0;
    std::string out, err;
  };
  Result launch(int ranks, const std::string& lines) const {
    LauncherProcess launcher(folder_.path(), {"-n", std::to_string(ranks), "--", program(lines)});
    const int code = launcher.wait();
    EXPECT_EQ(launcher.left(), std::vector<pid_t>{});
    return {code, launcher.out(), without_cores_line(launcher.err())};
  }

  // Expects exit code 2 and only `line`.
  void refuses(const std::string& arguments, const std::string& line,
               const std::string& before = "") const {
    const auto result =
        shell(before + " " + forked_tanren() + " launch " + arguments, folder_.path());
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_EQ(without_cores_line(result.output), line + "\n") << arguments;
  }

  std::string text(const std::string& name) const { return read_file(folder_.path() / name); }
  bool exists(const std::string& name) const { return fs::exists(folder_.path() / name); }
  // Whether all ranks have created their file NAME.$RANK in time.
  bool all_made(const std::string& name, int ranks) const {
    return comes_true([&] {
      for (int rank = 0; rank < ranks; ++rank) {
        if (!exists(name + "." + std::to_string(rank))) return false;
      }
      return true;
    });
  }

  TemporaryFolder folder_;
};

TEST_F(Launch, refuses_numbers_of_ranks_and_machines_that_are_none) {
  refuses("-- true", "[launch] how many ranks? give -n N, those of this machine");
  for (const char* bad : {"0", "-1", "two", "1.5", "4x", "1025", ""}) {
    refuses("-n '" + std::string(bad) + "' -- true",
            *bad == 0
                ? "[launch] how many ranks? give -n N, those of this machine"
                : "[launch] -n is \"" + std::string(bad) + "\"; give a number from 1 to 1024");
  }
  refuses("-n 1 --nodes 0 -- true", "[launch] --nodes is \"0\"; give a number from 1 to 1024");
  refuses("-n 1 --nodes 2 --node-rank 2 --master localhost:29500 -- true",
          "[launch] --node-rank is \"2\"; give a number from 0 to 1");
  refuses("-n 1 --node-rank 1 -- true", "[launch] --node-rank is \"1\"; give a number from 0 to 0");
  refuses("-n 1 --nodes 2 --master localhost:29500 -- true",
          "[launch] --nodes 2 without --node-rank; say which of them this machine is, from 0 to 1");
}

TEST_F(Launch, refuses_a_rendezvous_point_that_cannot_be) {
  refuses("-n 1 --nodes 2 --node-rank 0 -- true",
          "[launch] --nodes 2 without --master; give HOST:PORT, an address of node 0 and a free "
          "port there, the same on all nodes");
  for (const char* bad : {"localhost", "29500", ":29500", ""}) {
    if (*bad == 0) continue;
    refuses("-n 1 --master " + std::string(bad) + " -- true",
            "[launch] --master is \"" + std::string(bad) +
                "\"; give HOST:PORT, an address of node 0 and a free port there");
  }
  for (const char* port : {"80", "65536", "x", ""}) {
    refuses("-n 1 --master localhost:" + std::string(port) + " -- true",
            "[launch] the port of --master localhost:" + std::string(port) + " is \"" +
                std::string(port) + "\"; give a number from 1024 to 65535");
  }
  const TakenPort taken;
  const std::string master = "127.0.0.1:" + taken.text();
  refuses("-n 1 --master " + master + " -- true",
          "[launch] --master " + master + ": port " + taken.text() +
              " of this machine: Address already in use; name a free one, the same on all nodes");
  // The port of another machine is not checked.
  EXPECT_EQ(
      shell(TANREN_BINARY " launch -n 1 --nodes 2 --node-rank 1 --master " + master + " -- true",
            folder_.path())
          .code,
      0);
}

TEST_F(Launch, refuses_what_is_no_program) {
  folder_.file("text", "echo started\n");
  refuses("-n 1 -- ./none",
          "[launch] ./none does not exist; name the program of the ranks behind --");
  refuses("-n 1 -- ./text",
          "[launch] ./text is not executable; chmod +x it, or name its interpreter first");
  refuses("-n 1 -- /", "[launch] / is no program; name a file that runs");
  refuses("-n 1 -- no-such-program",
          "[launch] no-such-program is in no folder of PATH; name the program's path, "
          "./no-such-program where it is here");
  fs::permissions(folder_.path() / "text", fs::perms::owner_all);
  const auto result = shell(TANREN_BINARY " launch -n 1 -- ./text", folder_.path());
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.output,
            "[launch] ./text cannot be started: Exec format error; name a program that runs by "
            "itself\n");
}

TEST_F(Launch, refuses_verbs_that_do_not_run_on_ranks_and_reads_those_that_do_first) {
  refuses("-n 1 plan run.toml",
          "[launch] \"plan\" is no verb that runs on ranks; those are run, eval, predict (a "
          "program of your "
          "own stands behind --)");
  refuses("-n 1",
          "[launch] name a verb, or a program behind --; tanren launch -n 4 run FILE, or -n 4 -- "
          "./program");
  refuses(
      "-n 1 run a.toml -- true",
      "[launch] name a verb, or a program behind --, and not both; tanren launch -n 4 run FILE, "
      "or -n 4 -- ./program");
  refuses("-n 1 --fast run a.toml",
          "[launch] unknown option --fast; options of launch are -n, --nodes, --node-rank, "
          "--master");
  refuses("-n 2 run a.toml --lr=1",
          "[cli] run takes no --lr=1; keys are set with --set KEY=VALUE; here it is "
          "optimizer.learning_rate");
  refuses("-n 2 run none.toml",
          "[config] none.toml does not exist; give a config file or a run folder");
  const auto help = shell(TANREN_BINARY " launch -n 2 run --help", folder_.path());
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.output, shell(TANREN_BINARY " run --help", folder_.path()).output);
}

TEST_F(Launch, refuses_to_nest_in_another_launcher) {
  refuses("-n 2 -- true",
          "[launch] this process is rank 1 of 4 already, started by a launcher that sets RANK and "
          "WORLD_SIZE; give it the command itself, without launch",
          "RANK=1 WORLD_SIZE=4");
  refuses("-n 2 -- true",
          "[launch] this process is rank 3 of 8 already, started by slurm; give it the command "
          "itself, without launch, or one launch a machine with --nodes",
          "SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=8 SLURM_JOB_ID=1");
  const auto one_each = shell(
      "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=1 " TANREN_BINARY
      " launch -n 1 --nodes 2 --node-rank 1 --master localhost:29500 -- sh -c 'echo $RANK >&2'",
      folder_.path());
  EXPECT_EQ(one_each.output, "[rank 1] 1\n");
}

TEST_F(Launch, gives_each_rank_the_environment_of_torchrun) {
  program("env > env.$RANK");
  const auto result = shell(
      "export OMP_NUM_THREADS=3 TORCHELASTIC_RUN_ID=old MASTER_ADDR=old KEPT='a b'; " TANREN_BINARY
      " launch -n 3 -- ./program && " TANREN_BINARY
      " launch -n 2 --nodes 2 --node-rank 1 --master localhost:29511 -- ./program",
      folder_.path());
  EXPECT_EQ(result.code, 0) << result.output;
  std::map<std::string, std::string> wanted = {
      {"RANK", "1"},       {"WORLD_SIZE", "3"},          {"LOCAL_RANK", "1"},
      {"GROUP_RANK", "0"}, {"LOCAL_WORLD_SIZE", "3"},    {"GROUP_WORLD_SIZE", "1"},
      {"KEPT", "a b"},     {"MASTER_ADDR", "127.0.0.1"}, {"OMP_NUM_THREADS", "3"}};
  for (const auto& [name, value] : wanted) {
    TANREN_EXPECT_CONTAINS("\n" + text("env.1"), "\n" + name + "=" + value + "\n");
  }
  EXPECT_FALSE(contains(text("env.1"), "TORCHELASTIC"));
  const std::regex port("MASTER_PORT=(6[1-4][0-9]{3})\n");
  std::smatch of_first;
  const std::string first = text("env.0");
  ASSERT_TRUE(std::regex_search(first, of_first, port)) << first;
  TANREN_EXPECT_CONTAINS(text("env.1"), of_first[0].str());
  wanted = {{"RANK", "3"},
            {"WORLD_SIZE", "4"},
            {"LOCAL_RANK", "1"},
            {"GROUP_RANK", "1"},
            {"LOCAL_WORLD_SIZE", "2"},
            {"GROUP_WORLD_SIZE", "2"},
            {"MASTER_PORT", "29511"},
            {"MASTER_ADDR", "localhost"}};
  for (const auto& [name, value] : wanted) {
    TANREN_EXPECT_CONTAINS("\n" + text("env.3"), "\n" + name + "=" + value + "\n");
  }
}

TEST_F(Launch, passes_on_whole_lines_however_they_are_written) {
  const auto merged =
      shell(TANREN_BINARY " launch -n 4 -- " +
                program("for i in $(seq 200); do printf \"ab$RANK\"; printf \"cd$i\\nef\" >&2; "
                        "printf \"gh\\n\"; printf 'ij\\n' >&2; done") +
                " 2>&1",
            folder_.path());
  EXPECT_EQ(merged.code, 0);
  std::map<std::string, int> count;
  static const std::regex shape(
      "ab0gh|\\[rank ([123])\\] ab\\1gh|\\[rank [0-3]\\] (cd[0-9]+|efij|efcd[0-9]+)");
  for (const auto& line : lines_of(without_cores_line(merged.output))) {
    EXPECT_TRUE(std::regex_match(line, shape)) << line;
    ++count[line];
  }
  for (const char* line : {"ab0gh", "[rank 1] ab1gh", "[rank 3] ab3gh"}) {
    EXPECT_EQ(count[line], 200) << line;
  }
  EXPECT_EQ(count["[rank 2] efij"], 200);
}

TEST_F(Launch, stdout_is_that_of_rank_0_to_the_byte) {
  const auto result = launch(3, "printf \"bar $RANK\\rbar done\\nlast\\000half\"; echo e$RANK >&2");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, std::string("bar 0\rbar done\nlast\0half", 24));
  auto lines = lines_of(result.err);
  std::sort(lines.begin(), lines.end());
  const std::string half = std::string("last\0half", 9);
  EXPECT_EQ(lines, (std::vector<std::string>{"[rank 0] e0", "[rank 1] bar done", "[rank 1] e1",
                                             "[rank 1] " + half, "[rank 2] bar done", "[rank 2] e2",
                                             "[rank 2] " + half}));
}

// A full disk lost what rank 0 printed, and the exit code was 0.
TEST_F(Launch, output_that_cannot_be_written_ends_it_with_1_and_one_line) {
  const std::string line =
      "[launch] cannot write to standard output; make room, or send it elsewhere\n";
  const auto ended_with = [&](int code) {
    program("echo \"said $RANK\"; exit " + std::to_string(code));
    return shell(TANREN_BINARY " launch -n 1 -- ./program > /dev/full", folder_.path());
  };
  const ShellResult lost = ended_with(0);
  EXPECT_EQ(lost.code, 1);
  EXPECT_EQ(lost.output, line);
  const ShellResult failed = ended_with(7);
  EXPECT_EQ(failed.code, 7) << "the cause's own code stays";
  TANREN_EXPECT_CONTAINS(failed.output, "rank 0");
  program("exit 0");
  EXPECT_EQ(shell(TANREN_BINARY " launch -n 1 -- ./program > /dev/full", folder_.path()).code, 0)
      << "it prints nothing";
}

TEST_F(Launch, needs_no_open_standard_descriptors) {
  program("echo \"said $RANK\" | tee said.$RANK; cat said.$RANK >&2");
  for (const char* closed : {">&-", "2>&-", "<&- >&- 2>&-"}) {
    const std::string line = "timeout 30 " TANREN_BINARY " launch -n 2 -- ./program ";
    shell(line + closed + "; echo code $? > code", folder_.path());
    EXPECT_EQ(text("code"), "code 0\n") << closed;
    EXPECT_EQ(text("said.0") + text("said.1"), "said 0\nsaid 1\n") << closed;
  }
}

TEST_F(Launch, a_line_without_end_comes_in_parts_and_none_of_it_is_lost) {
  const auto result = launch(2, "head -c 300000 /dev/zero | tr '\\0' x");
  EXPECT_EQ(result.out, std::string(300'000, 'x'));
  std::string joined;
  for (const auto& line : lines_of(result.err)) {
    EXPECT_EQ(line.rfind("[rank 1] ", 0), 0u);
    joined += line.substr(9);
  }
  EXPECT_EQ(joined, std::string(300'000, 'x'));
}

TEST_F(Launch, rank_0_has_the_terminal) {
  if (shell("script --version", folder_.path()).code != 0) GTEST_SKIP() << "no script(1) here";
  program("[ -t 1 ] && echo \"terminal $RANK\"; [ -t 2 ] || echo plain >&2; [ -t 0 ] || exit 0");
  const auto result =
      shell("script -qec '" TANREN_BINARY " launch -n 2 -- ./program' /dev/null < /dev/null",
            folder_.path());
  EXPECT_EQ(result.code, 0);
  TANREN_EXPECT_CONTAINS(result.output, "terminal 0\r\n");
  TANREN_EXPECT_CONTAINS(result.output, "\r\x1b[K[rank 1] plain\r\n");
  EXPECT_FALSE(contains(result.output, "terminal 1"));
}

TEST_F(Launch, ctrl_c_on_a_terminal_reaches_each_rank_once) {
  if (shell("script --version", folder_.path()).code != 0) GTEST_SKIP() << "no script(1) here";
  program(
      "trap 'echo int >> got.$RANK' INT; touch ready.$RANK; "
      "until [ -s got.$RANK ]; do sleep 0.02; done; sleep 0.5; exit 130");
  const auto result = shell(
      "{ until [ -e ready.0 ] && [ -e ready.1 ]; do sleep 0.02; done; printf '\\003'; sleep 1; } | "
      "timeout 60 script -qec '" TANREN_BINARY " launch -n 2 -- ./program' /dev/null",
      folder_.path());
  EXPECT_EQ(result.code, 130) << result.output;
  EXPECT_EQ(text("got.0"), "int\n");
  EXPECT_EQ(text("got.1"), "int\n");
}

TEST_F(Launch, names_the_cause_though_its_echoes_end_first) {
  const auto result =
      launch(3, kTogether +
                    "if [ $RANK = 1 ]; then\n"
                    "  until [ -e echo.0 ] && [ -e echo.2 ]; do sleep 0.01; done\n"
                    "  echo '[data] row 7 is no number' >&2; echo >&2; exit 4\n"
                    "fi\n"
                    "echo \"[comm] rank 1 was lost\" >&2; touch echo.$RANK; exit 1");
  EXPECT_EQ(result.code, 4);
  const auto lines = lines_of(result.err);
  ASSERT_EQ(lines.size(), 5u) << result.err;
  static const std::regex last(
      "\\[launch\\] rank 1 \\(pid [0-9]+\\) failed first: \\[data\\] row 7 "
      "is no number; the others were ended");
  EXPECT_TRUE(std::regex_match(lines.back(), last)) << lines.back();
}

TEST_F(Launch, among_echoes_alone_the_first_is_named) {
  const auto result =
      launch(2,
             "[ $RANK = 1 ] || until [ -e gone ]; do sleep 0.01; done\n"
             "echo \"[comm] rank $((1 - RANK)) never came\" >&2; touch gone; sleep 0.3; exit 1");
  EXPECT_EQ(result.code, 1);
  TANREN_EXPECT_CONTAINS(result.err, " failed first: [comm] rank ");
}

TEST_F(Launch, an_abort_is_named_with_what_was_said_before_it) {
  const auto result = launch(1, "echo '  what():  no luck' >&2; kill -ABRT $$");
  EXPECT_EQ(result.code, 1);
  static const std::regex said(
      "\\[rank 0\\]   what\\(\\):  no luck\n\\[launch\\] rank 0 \\(pid [0-9]+\\) "
      "failed first: killed by signal 6 \\(Aborted\\): what\\(\\):  no luck\n");
  EXPECT_TRUE(std::regex_match(result.err, said)) << result.err;
}

TEST_F(Launch, what_all_ranks_refuse_alike_is_said_once) {
  const auto result =
      launch(4, kTogether + "echo '[config] a is wrong' >&2; echo '[config] b, too' >&2; exit 2");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "[config] a is wrong\n[config] b, too\n");
  EXPECT_EQ(result.out, "");
}

// The order in which the ranks end does not matter.
TEST_F(Launch, what_one_rank_refuses_and_the_others_heard_of_is_said_once) {
  for (const char* pause : {"0.$RANK", "0.$((9 - RANK))"}) {
    // A rank that waited for a message also names that message.
    const std::string heard =
        "echo \"[comm] rank 1: [run] out is finished; go on; rank $RANK waited for rank 1 to send "
        "the gradient of microbatch $RANK (8 bytes)\" >&2; exit 1";
    const auto result = launch(3, kTogether + "sleep " + pause + "\n[ $RANK = 1 ] || { " + heard +
                                      "; }\necho '[run] out is finished; go on' >&2; exit 2");
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.err, "[run] out is finished; go on\n");
  }
}

TEST_F(Launch, what_each_waited_for_is_said_where_no_rank_here_says_the_cause) {
  const auto result = launch(2, kTogether +
                                    "echo \"[comm] rank 7 is gone; rank $RANK waited for rank "
                                    "$((RANK + 6)) to send a row (8 bytes)\" >&2; exit 1");
  EXPECT_EQ(result.code, 1);
  TANREN_EXPECT_CONTAINS(result.err, "rank 0 waited for rank 6");
  TANREN_EXPECT_CONTAINS(result.err, "rank 1 waited for rank 7");
}

TEST_F(Launch, ranks_that_fail_with_other_words_all_have_their_say) {
  const auto result = launch(3, kTogether + "echo \"[config] rank $RANK differs\" >&2; exit 2");
  EXPECT_EQ(result.code, 2);
  for (const char* line :
       {"[rank 0] [config] rank 0 differs\n", "[rank 1] [config] rank 1 differs\n",
        "[rank 2] [config] rank 2 differs\n"}) {
    TANREN_EXPECT_CONTAINS(result.err, line);
  }
  EXPECT_EQ(lines_of(result.err).back().rfind("[launch] rank ", 0), 0u);
}

TEST_F(Launch, exit_codes_are_those_of_the_cause) {
  EXPECT_EQ(launch(2, "exit 0").code, 0);
  EXPECT_EQ(launch(2, "exit 130").code, 130);
  EXPECT_EQ(launch(2, "exit $((RANK * 130))").code, 130);
  EXPECT_EQ(launch(2, "[ $RANK = 0 ] || exit 7").code, 7);
  const auto silent = launch(2, "[ $RANK = 0 ] || exit 7");
  TANREN_EXPECT_CONTAINS(silent.err, "failed first: exit code 7; the others were ended\n");
  EXPECT_EQ(launch(2, "[ $RANK = 0 ] || kill -SEGV $$").code, 1);
}

// Script lines of ranks that run until they are killed. Each rank has a child process, and both set
// `traps`.
std::string long_lines(const std::string& traps) {
  return traps + "\n(" + traps + "\nwhile :; do sleep 0.2; done) &\n" +
         "echo $$ > pid.$RANK; touch ready.$RANK\nwhile :; do sleep 0.2; done";
}

TEST_F(Launch, what_a_killed_rank_leaves_behind_does_not_hide_its_end) {
  const std::string rest = "(trap 'echo late >&2; exit' TERM; touch ready; sleep 1000 & wait) &\n";
  LauncherProcess launcher(
      folder_.path(),
      {"-n", "1", "--", program(rest + "until [ -e ready ]; do sleep 0.1; done; kill -9 $$")});
  EXPECT_EQ(launcher.wait(20), 1);
  const std::string err = launcher.err();
  EXPECT_NE(err.find("late\n"), std::string::npos) << err;
  EXPECT_NE(err.find("failed first: killed by signal 9"), std::string::npos) << err;
}

TEST_F(Launch, a_killed_rank_ends_all_within_10_s_and_nothing_is_left) {
  std::mt19937 random(std::random_device{}());
  for (const char* traps : {"", "trap '' TERM INT HUP", ""}) {
    for (int rank = 0; rank < 4; ++rank)
      fs::remove(folder_.path() / ("ready." + std::to_string(rank)));
    LauncherProcess launcher(folder_.path(), {"-n", "4", "--", program(long_lines(traps))});
    ASSERT_TRUE(all_made("ready", 4));
    const std::string rank = std::to_string(random() % 4);
    const std::string pid = std::to_string(std::stoi(text("pid." + rank)));
    ::kill(std::stoi(pid), SIGKILL);
    EXPECT_EQ(launcher.wait(10), 1) << "rank " << rank;
    const auto lines = lines_of(launcher.err());
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.back(),
              "[launch] rank " + rank + " (pid " + pid +
                  ") failed first: killed by signal 9 (Killed); the others were ended");
    EXPECT_EQ(launcher.left(), std::vector<pid_t>{});
  }
}

TEST_F(Launch, when_it_is_killed_itself_nothing_is_left) {
  LauncherProcess launcher(folder_.path(),
                           {"-n", "3", "--", program(long_lines("trap '' TERM INT HUP"))});
  ASSERT_TRUE(all_made("ready", 3));
  EXPECT_GE(launcher.left().size(), 8u);  // itself, its guard, three ranks and their children
  launcher.send(SIGKILL);
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  EXPECT_TRUE(comes_true([&] { return launcher.left().empty(); }, 10)) << launcher.left().size();
}

TEST_F(Launch, what_ranks_leave_behind_ends_with_the_last_of_them) {
  const auto result = launch(2, "sleep 1000 & echo done");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "done\n");
  EXPECT_EQ(result.err, "[rank 1] done\n");
}

TEST_F(Launch, a_signal_goes_to_all_ranks_once_and_they_take_their_time) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    for (int rank = 0; rank < 3; ++rank) {
      for (const char* name : {"ready.", "got."})
        fs::remove(folder_.path() / (name + std::to_string(rank)));
    }
    const std::string lines =
        "trap 'echo TERM >> got.$RANK' TERM; trap 'echo INT >> got.$RANK' INT; touch ready.$RANK\n"
        "until [ -s got.$RANK ]; do sleep 0.02; done; sleep " +
        std::string(signal == SIGTERM ? "$((3 * (1 - RANK % 2)))" : "0") + "; echo saved; exit 130";
    LauncherProcess launcher(folder_.path(), {"-n", "3", "--", program(lines)});
    ASSERT_TRUE(all_made("ready", 3));
    launcher.send(signal);
    EXPECT_EQ(launcher.wait(), 130);
    for (const char* rank : {"0", "1", "2"}) {
      EXPECT_EQ(text("got." + std::string(rank)), signal == SIGINT ? "INT\n" : "TERM\n");
    }
    EXPECT_EQ(launcher.out(), "saved\n");
    TANREN_EXPECT_CONTAINS(launcher.err(), " went to all ranks, to stop them; ");
    EXPECT_EQ(contains(launcher.err(), "; a second one kills them\n"), signal == SIGINT);
    EXPECT_EQ(contains(launcher.err(), "; Ctrl-C twice kills them\n"), signal != SIGINT);
    EXPECT_EQ(contains(launcher.err(), "signal 1 (Hangup) came, and signal 15"), signal == SIGHUP);
    EXPECT_FALSE(contains(launcher.err(), "failed"));
  }
}

// Issue 21: any second signal killed the ranks, although many programs send a signal twice.
TEST_F(Launch, all_further_signals_are_the_same_wish_and_only_a_second_interrupt_kills) {
  LauncherProcess launcher(
      folder_.path(),
      {"-n", "2", "--", program(long_lines("trap 'echo TERM >> got.$RANK' TERM; trap '' INT"))});
  ASSERT_TRUE(all_made("ready", 2));
  for (const int signal : {SIGTERM, SIGTERM, SIGHUP, SIGINT, SIGINT}) launcher.send(signal);
  ASSERT_TRUE(all_made("got", 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.wait(0.5), -1) << launcher.err();
  EXPECT_EQ(text("got.0"), "TERM\nTERM\n") << "once to the rank, once to what it started";
  launcher.send(SIGINT);
  EXPECT_EQ(launcher.wait(10), 1);
  TANREN_EXPECT_CONTAINS(launcher.err(), "[launch] a second interrupt: the ranks are killed\n");
  TANREN_EXPECT_CONTAINS(lines_of(launcher.err()).back(),
                         "stopped by signal 9 (Killed), before 2 of 2 ranks said");
  EXPECT_EQ(launcher.left(), std::vector<pid_t>{});
}

TEST_F(Launch, ranks_that_end_by_the_signal_did_not_say_that_they_saved) {
  LauncherProcess launcher(folder_.path(), {"-n", "2", "--", program(long_lines(""))});
  ASSERT_TRUE(all_made("ready", 2));
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.wait(10), 1);
  TANREN_EXPECT_CONTAINS(lines_of(launcher.err()).back(),
                         "[launch] stopped by signal 15 (Terminated), before 2 of 2 ranks said");
}

TEST_F(Launch, a_reader_that_waits_or_leaves_does_not_keep_it) {
  const std::string endless = program("touch ready.$RANK; while :; do echo line; done");
  {
    LauncherProcess launcher(folder_.path(), {"-n", "2", "--", endless});
    ASSERT_TRUE(all_made("ready", 2));
    launcher.send(SIGTERM);
    EXPECT_EQ(launcher.wait(10), 1);
  }
  const auto left =
      shell(TANREN_BINARY " launch -n 2 -- ./program 2> err | head -n 1", folder_.path());
  EXPECT_EQ(left.output, "line\n");
  // A reader that reads nothing: output waits, but signals are handled.
  const auto waits = shell("mkfifo slow; sleep 1000 < slow & S=$!; " TANREN_BINARY
                           " launch -n 2 -- ./program > slow 2> err & L=$!; exec 2> /dev/null; "
                           "sleep 1; for i in 1 2 3 4 5; do kill -TERM $L; sleep 0.3; done; "
                           "wait $L; echo code $?; kill $S",
                           folder_.path());
  // 143: a signal came when the launcher had finished and no longer handled signals.
  EXPECT_TRUE(waits.output == "code 1\n" || waits.output == "code 143\n") << waits.output;
}

TEST_F(Launch, more_ranks_than_cores_are_fine_and_said) {
  const int ranks = static_cast<int>(std::thread::hardware_concurrency()) + 1;
  LauncherProcess launcher(folder_.path(), {"-n", std::to_string(ranks), "--", program("exit 0")});
  EXPECT_EQ(launcher.wait(), 0);
  static const std::regex line(
      "\\[launch\\] [0-9]+ ranks share [0-9]+ cores? of this machine; as many "
      "as cores are faster\n");
  EXPECT_TRUE(std::regex_match(launcher.err(), line)) << launcher.err();
}

}  // namespace
}  // namespace tanren::testing
