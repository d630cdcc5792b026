// What stages send each other over engines of different kinds, and how long they keep it.
#include "tests/stages/staged_models.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/comm/c10d_communicator.h"
#include "tanren/comm/with_parts.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tanren::testing {
namespace {

void expect_bitwise(const Trained& staged, const Trained& whole) {
  EXPECT_EQ(staged.losses, whole.losses);
  EXPECT_EQ(staged.norms, whole.norms);
  ASSERT_EQ(staged.tensors.size(), whole.tensors.size());
  for (const auto& [name, tensor] : whole.tensors) {
    EXPECT_TRUE(at::equal(staged.tensors.at(name), tensor)) << name;
  }
}

// Like NCCL with one stream: each rank runs its groups in order, and the messages of a group at
// once. A message is copied when both ranks have reached the group that holds their side of it.
class GroupEngine {
 public:
  struct Message {
    bool is_sent;
    int rank;  // the other
    at::Tensor bytes;
    bool is_done = false;
  };
  struct Group {
    std::vector<Message> messages;
    bool is_done = false;
  };
  explicit GroupEngine(int size) : queues_(static_cast<size_t>(size)) {}

  std::shared_ptr<Group> add(int rank, std::vector<Message> messages) {
    const std::lock_guard lock(mutex_);
    auto group = std::make_shared<Group>(Group{std::move(messages)});
    queues_[static_cast<size_t>(rank)].push_back(group);
    while (advance()) {
    }
    changed_.notify_all();
    return group;
  }
  bool wait(const Group& group, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return group.is_done; });
  }

 private:
  // The first unfinished message with `other` in the current group of `rank`; null: none.
  Message* first_of(int rank, int other, bool is_sent) {
    auto& queue = queues_[static_cast<size_t>(rank)];
    if (queue.empty()) return nullptr;
    for (Message& message : queue.front()->messages) {
      const bool is_it = message.is_sent == is_sent && message.rank == other;
      if (is_it && !message.is_done) return &message;
    }
    return nullptr;
  }
  // Runs what can run now. Returns whether anything did.
  bool advance() {
    const int size = static_cast<int>(queues_.size());
    bool has_moved = false;
    for (int from = 0; from < size; ++from) {
      for (int to = 0; to < size; ++to) {
        Message *sent = first_of(from, to, true), *received = first_of(to, from, false);
        if (sent == nullptr || received == nullptr) continue;
        received->bytes.copy_(sent->bytes);
        sent->is_done = received->is_done = has_moved = true;
      }
    }
    for (auto& queue : queues_) {
      if (queue.empty()) continue;
      const auto& messages = queue.front()->messages;
      const auto is_done = [](const Message& message) { return message.is_done; };
      if (!std::all_of(messages.begin(), messages.end(), is_done)) continue;
      queue.front()->is_done = has_moved = true;
      queue.pop_front();
    }
    return has_moved;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<std::shared_ptr<Group>>> queues_;  // by rank
};

class GroupWork final : public c10d::Work {
 public:
  GroupWork(std::shared_ptr<GroupEngine> engine, std::shared_ptr<GroupEngine::Group> group)
      : engine_(std::move(engine)), group_(std::move(group)) {}
  bool wait(std::chrono::milliseconds timeout) override {
    if (engine_->wait(*group_, timeout)) return true;
    throw std::runtime_error("the groups wait for each other");
  }

 private:
  std::shared_ptr<GroupEngine> engine_;
  std::shared_ptr<GroupEngine::Group> group_;
};

class GroupBackend final : public c10d::Backend {
 public:
  GroupBackend(std::shared_ptr<GroupEngine> engine, int rank, int size)
      : c10d::Backend(rank, size), engine_(std::move(engine)) {}
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int rank,
                                      int /*tag*/) override {
    messages_.push_back({true, rank, tensors.at(0)});
    return {};
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int rank,
                                      int /*tag*/) override {
    messages_.push_back({false, rank, tensors.at(0)});
    return {};
  }
  void startCoalescing() override { messages_.clear(); }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    return c10::make_intrusive<GroupWork>(engine_, engine_->add(getRank(), std::move(messages_)));
  }
  void abort() override {}

 private:
  std::shared_ptr<GroupEngine> engine_;
  std::vector<GroupEngine::Message> messages_;
};

std::shared_ptr<Communicator> borrowed(Communicator& comm) {
  return {&comm, [](Communicator*) {}};
}

// Stages of one replica, with messages in groups.
OnRanks over_groups(int stages) {
  return [stages](const auto& each) {
    const auto engine = std::make_shared<GroupEngine>(stages);
    on_ranks(stages, [&](Communicator& world) {
      auto backend = c10::make_intrusive<GroupBackend>(engine, world.rank(), stages);
      const std::shared_ptr<Communicator> pipeline = c10d_communicator(
          std::move(backend),
          {.name = "groups", .timeout = std::chrono::seconds(20), .in_groups = true});
      each(RankAxes{.world = RankAxis(borrowed(world)), .pipeline = RankAxis(pipeline)});
    });
  };
}

OnRanks over_gloo(int stages, int replicas) {
  return [stages, replicas](const auto& each) {
    using Part = std::shared_ptr<Communicator>;
    on_gloo_ranks(stages * replicas, [&](Communicator& world) {
      with_parts(world, world.rank() % replicas, [&](const Part& pipeline) {
        with_parts(world, world.rank() / replicas, [&](const Part& data) {
          each(RankAxes{.world = RankAxis(borrowed(world)),
                        .data = RankAxis(data),
                        .pipeline = RankAxis(pipeline)});
        });
      });
    });
  };
}

// The last microbatch is smaller, so that its shape goes ahead while gradients are awaited.
TEST(StageMessages, of_an_engine_that_runs_groups_in_order_never_wait_for_each_other) {
  const StagedModel model("mlp", "fp32");
  StagedRun run = model.run(/*replicas=*/1);
  const Trained whole = trained(run, 2);
  for (const int stages : {2, 3, 4}) {
    for (const auto schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe}) {
      SCOPED_TRACE(std::to_string(stages) + " stages, schedule " +
                   std::to_string(static_cast<int>(schedule)));
      run.stages = stages;
      run.schedule = schedule;
      expect_bitwise(trained(over_groups(stages), run, 2), whole);
    }
  }
}

TEST(StageMessages, over_gloo_train_as_the_whole_model) {
  for (const int replicas : {1, 2}) {
    SCOPED_TRACE(std::to_string(replicas) + " replicas");
    const StagedModel model("mlp", "fp32");
    StagedRun run = model.run(replicas);
    const Trained whole = trained(run, 2);
    run.stages = 2;
    expect_bitwise(trained(over_gloo(2, replicas), run, 2), whole);
  }
}

TEST(StageMessages, over_gloo_keep_a_weight_of_two_stages_the_same_on_both) {
  const TokenData data(36);
  StagedRun run{.config = ranks_config("fp32"), .data = data, .stages = 2, .replicas = 2};
  run.config.batch.microbatch = 2;
  const Trained staged = trained(over_gloo(2, 2), run, 3);  // compares the holders bitwise
  run.stages = 1;
  const Trained whole = trained(run, 3);
  for (size_t i = 0; i < whole.losses.size(); ++i) {
    EXPECT_NEAR(staged.losses.at(i), whole.losses[i], 1e-4) << i;
  }
}

// Passes each message to a test before it starts.
class TappedCommunicator final : public Communicator {
 public:
  using Tap =
      std::function<void(bool sends, const at::Tensor& tensor, int rank, const std::string& what)>;
  TappedCommunicator(RankAxis axis, Tap tap) : axis_(std::move(axis)), tap_(std::move(tap)) {}
  int rank() const override { return inner().rank(); }
  int world_size() const override { return inner().world_size(); }
  std::string_view name() const override { return inner().name(); }
  at::Device device() const override { return inner().device(); }
  at::Device device_for(at::Device own) const override { return inner().device_for(own); }
  Work start_sum(const at::Tensor& tensor) override { return inner().start_sum(tensor); }
  Work start_sum_scatter(const at::Tensor& part, const at::Tensor& whole) override {
    return inner().start_sum_scatter(part, whole);
  }
  Work start_gather(const at::Tensor& whole, const at::Tensor& part) override {
    return inner().start_gather(whole, part);
  }
  Work start_broadcast(const at::Tensor& tensor, int root) override {
    return inner().start_broadcast(tensor, root);
  }
  void cancel(const std::string& why) override { inner().cancel(why); }
  void check() const override { inner().check(); }

 private:
  Work begin_send(const at::Tensor& tensor, int rank, const std::string& what) override {
    tap_(true, tensor, rank, what);
    return inner().start_send(tensor, rank, what);
  }
  Work begin_receive(const at::Tensor& tensor, int rank, const std::string& what) override {
    tap_(false, tensor, rank, what);
    return inner().start_receive(tensor, rank, what);
  }
  Communicator& inner() const { return axis_.communicator(); }

  RankAxis axis_;
  Tap tap_;
};

// `tap_of` makes the tap of a stage.
OnRanks tapped(int stages, const std::function<TappedCommunicator::Tap(int64_t)>& tap_of) {
  return [stages, tap_of](const auto& each) {
    const Mesh mesh(stages, /*replicas=*/1);
    mesh.run([&](const RankAxes& axes) {
      RankAxes own = axes;
      own.pipeline = RankAxis(
          std::make_shared<TappedCommunicator>(axes.pipeline, tap_of(axes.pipeline.rank())));
      each(own);
    });
  };
}

TEST(StageMessages, are_kept_no_longer_than_their_microbatch_is_in_flight) {
  using Kept = std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>;
  constexpr int kStages = 3, kMicrobatches = 8;
  const StagedModel model("mlp", "fp32");
  StagedRun run = model.run(/*replicas=*/1);
  run.config.batch.global_batch = std::to_string(2 * kMicrobatches);
  run.config.batch.microbatch = 2;
  run.stages = kStages;
  for (const auto schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe}) {
    run.schedule = schedule;
    std::atomic<int> outputs = 0, gradients = 0;
    const auto tap_of = [&](int64_t stage) {
      const int64_t most =
          most_in_flight(pipeline_actions(schedule, stage, kStages, kMicrobatches));
      return [&, stage, most, kept = std::array<Kept, 2>()](
                 bool sends, const at::Tensor& tensor, int rank, const std::string& what) mutable {
        if (!sends || what.starts_with("the shape")) return;
        const bool is_output = rank > stage;
        ++(is_output ? outputs : gradients);
        Kept& own = kept[is_output ? 0 : 1];
        own.push_back(tensor.storage().getWeakStorageImpl());
        const auto live = std::count_if(own.begin(), own.end(),
                                        [](const auto& message) { return !message.expired(); });
        // For gradients: this one and the previous one.
        EXPECT_LE(live, is_output ? most : 2) << what << " of stage " << stage;
      };
    };
    on_mesh(tapped(kStages, tap_of), run, [](StageRank& rank) { rank.step(); });
    EXPECT_EQ(outputs, (kStages - 1) * kMicrobatches);
    EXPECT_EQ(gradients, (kStages - 1) * kMicrobatches);
  }
}

TEST(StageMessages, that_run_out_of_memory_in_the_exchange_of_a_weight_say_which_it_was) {
  const TokenData data(36);
  StagedRun run{.config = ranks_config("fp32"), .data = data, .stages = 3};
  run.config.batch.microbatch = 4;
  const auto tap_of = [](int64_t stage) {
    return
        [stage](bool sends, const at::Tensor& /*tensor*/, int /*rank*/, const std::string& what) {
          if (sends || stage != 0 || what != "the gradient of transformer.wte.weight") return;
          TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory: 99 bytes");
        };
  };
  const std::string error = error_of<MemoryError>(
      [&] { on_mesh(tapped(3, tap_of), run, [](StageRank& rank) { rank.step(); }); });
  TANREN_EXPECT_CONTAINS(error,
                         "[memory] step 1, exchange of transformer.wte.weight, stage 1 of 3: out "
                         "of memory");
  TANREN_EXPECT_CONTAINS(error, "99 bytes");
}

}  // namespace
}  // namespace tanren::testing
