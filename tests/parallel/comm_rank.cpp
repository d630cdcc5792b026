// One rank as a process, for lost_rank_test: comm_rank WHAT [RANK SIZE RENDEZVOUS]. Without the
// last three it reads the launcher's environment. It prints "begun", "ready" when the ranks are
// connected, a line every five steps, and the error that ended it. Exit codes: 0 finished, 3 a
// CommError, 4 another error.
#include "tanren/base/error.h"
#include "tanren/comm/backend.h"
#include "tanren/comm/rendezvous.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void pause_for_a_while() { std::this_thread::sleep_for(2ms); }

// Performs step `step` of `what`; returns true at the end.
bool step_of(const std::string& what, tanren::Communicator& comm, int step,
             const at::Tensor& data) {
  if (what == "sums" || what == "impatient") {  // nearly always inside a sum
    comm.sum(data);
  } else if (what == "broadcasts") {  // nearly always with a payload half sent
    comm.broadcast(data, 0);
  } else if (what == "few") {
    comm.sum(data);
    return step == 10;
  } else if (what == "late") {  // all wait in a sum for the last rank, which never joins it
    if (comm.rank() == comm.world_size() - 1) {
      comm.check();
      pause_for_a_while();
    } else {
      comm.sum(data);
    }
  } else if (what == "ring" || what == "impatient ring") {  // nearly always amid a large message
    const int size = comm.world_size();
    const std::string name = "the row of step " + std::to_string(step);
    const at::Tensor got = at::empty_like(data);
    const auto receive = comm.start_receive(got, (comm.rank() + size - 1) % size, name);
    const auto send = comm.start_send(data, (comm.rank() + 1) % size, name);
    receive->wait();
    send->wait();
  } else if (what == "chain") {  // each waits for the next; the last never sends
    if (comm.rank() == comm.world_size() - 1) {
      comm.check();
      pause_for_a_while();
    } else {
      comm.start_receive(data, comm.rank() + 1, "the gradient of microbatch 3")->wait();
    }
  } else if (what == "alone") {  // no rank waits for another
    comm.check();
    pause_for_a_while();
  } else if (what == "error") {
    if (comm.rank() == comm.world_size() - 1 && step == 5) {
      throw std::runtime_error("[data] row 7 has 3 columns");
    }
    comm.sum(data);
  } else if (what == "leave") {  // each at a different step
    if (step == 5 + comm.rank() * 10) {
      comm.leave();
      return true;
    }
    comm.check();
    pause_for_a_while();
  } else {
    throw std::invalid_argument(what);
  }
  return false;
}

int run(const std::string& what, const tanren::World& world, const std::string& rendezvous) {
  if (what == "nccl") {
    const auto comm = tanren::make_communicator(world, {.backend = "nccl",
                                                        .rendezvous = rendezvous,
                                                        .device = at::Device(at::kCUDA, 0),
                                                        .timeout = 1min});
    say(std::string(comm->name()) + " of " + std::to_string(comm->world_size()) + " on " +
        comm->device().str());
    return 0;
  }
  if (what == "absent" && world.rank == world.size - 1) {  // joins the rendezvous, never connects
    tanren::World own = world;
    set_rendezvous(own, rendezvous);
    const auto met = tanren::join_rendezvous(own, 10min);
    say("met");
    std::this_thread::sleep_for(10min);
  }
  say("begun");
  const auto comm = tanren::make_communicator(
      world, {.rendezvous = rendezvous, .timeout = what.rfind("impatient", 0) == 0 ? 5s : 600s});
  say("ready");
  const int64_t num = what == "broadcasts" ? 16'000'000 : what == "ring" ? 4'000'000 : 300'000;
  const at::Tensor data = at::zeros({num});
  for (int step = 1;; ++step) {
    comm->set_state("step " + std::to_string(step));
    try {
      if (step_of(what, *comm, step, data)) return 0;
    } catch (const tanren::CommError&) {
      throw;
    } catch (const std::exception& error) {
      comm->cancel(error.what());
      throw;
    }
    if (step % 5 == 0) say("step " + std::to_string(step) + " is done");
  }
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  try {
    if (argc == 2) return run(argv[1], tanren::world_of(tanren::process_environment()), "");
    if (argc != 5) throw std::invalid_argument("comm_rank WHAT [RANK SIZE RENDEZVOUS]");
    tanren::World world;
    world.rank = world.local_rank = std::stoi(argv[2]);
    world.size = world.local_size = std::stoi(argv[3]);
    return run(argv[1], world, argv[4]);
  } catch (const tanren::CommError& error) {
    say(error.what());
    return 3;
  } catch (const std::exception& error) {
    say(error.what());
    return 4;
  }
}
