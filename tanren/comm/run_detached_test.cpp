#include "tanren/comm/run_detached.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>

namespace tanren {
namespace {

TEST(Apart, lets_go_of_what_the_work_holds_before_the_answer_is_there) {
  for (int round = 0; round < 200; ++round) {
    const auto held = std::make_shared<int>(round);
    EXPECT_EQ(run_detached([held] { return *held; }).get(), round);
    EXPECT_EQ(held.use_count(), 1);
    auto answer =
        run_detached([held]() -> int { throw std::runtime_error(std::to_string(*held)); });
    EXPECT_THROW(answer.get(), std::runtime_error);
    EXPECT_EQ(held.use_count(), 1);
  }
}

TEST(Apart, goes_on_where_nobody_waits) {
  std::promise<void> begin;
  const auto done = std::make_shared<std::promise<void>>();
  auto is_done = done->get_future();
  run_detached([begun = begin.get_future().share(), done] {
    begun.wait();
    done->set_value();
    return true;
  });
  begin.set_value();
  is_done.wait();
}

}  // namespace
}  // namespace tanren
