#include "tanren/comm/control/control.h"

#include "tanren/base/text.h"
#include "tanren/comm/control/ends.h"

#include <pthread.h>

#include <csignal>
#include <exception>
#include <utility>

namespace tanren {

ControlChannel::ControlChannel(Socket socket, const Options& given) : ControlMailbox(given) {
  // Only the run's own threads handle signals.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, socket = std::move(socket)]() mutable {
    try {
      (options.rank == 0 ? run_control_server : run_control_client)(std::move(socket), *this);
    } catch (const std::exception& error) {
      set_failure(fmt::format("[comm] rank {}: its control channel ended: {}", options.rank,
                              as_control_text(error.what())));
      call_back();
    }
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ControlChannel::~ControlChannel() {
  stop();
  thread_.join();
}

std::unique_ptr<ControlChannel> ControlChannel::open(Socket socket, const Options& options) {
  std::unique_ptr<ControlChannel> channel(new ControlChannel(std::move(socket), options));
  channel->wait_until_complete();
  return channel;
}

}  // namespace tanren
