// Predictions of whole models with 8-bit weights, beside the same weights in fp32 and bf16, in our
// evaluation and in Python's runtimes (peers/int8_torch.py).
#pragma once

#include "tanren/formats/safetensors.h"
#include "benchmarks/evaluated.h"
#include "benchmarks/int8_goal.h"
#include "benchmarks/peers/peer_process.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

namespace tanren::bench {

struct PeerGoal {
  const char* kind;  // as peers/int8_torch.py names it
  Goal goal = {};
};

struct Predictions {
  const char* model;
  QuantizeScheme scheme;
  std::vector<int64_t> batches;  // goals are for the first; at others no peer may be faster
  Goal of_bf16;                  // of our own bf16
  std::vector<PeerGoal> peers;
};

inline const Predictions kBert{"bert",
                               QuantizeScheme::dynamic,
                               {8, 1},
                               same_goal(0.75),
                               {{"fp32"},
                                {"bf16", {0.5, 0.7}},
                                {"autocast", {0.5, 0.7}},
                                {"torch_ao", {0.5, 0.75}},
                                {"torchao", same_goal(0.45)},
                                {"torchao_bf16", same_goal(0.45)},
                                {"onnx", same_goal(1)},
                                {"onnx_fused", same_goal(1)}}};
inline const Predictions kResNet{"resnet50",
                                 QuantizeScheme::calibrated,
                                 {8},
                                 same_goal(0.7),
                                 {{"fp32"}, {"bf16"}, {"autocast"}, {"onnx", same_goal(1.1)}}};

// The weights in fp32 and bf16, and in 8 bits with what is not 8-bit in fp32 or bf16.
struct OwnWays {
  Evaluated whole, stored_bf16, in_8_bits;
  Way fp32{"fp32", whole, "fp32"}, bf16{"bf16", whole, "bf16"};
  Way bf16_weights{"bf16 weights (O2)", stored_bf16, "bf16"};
  Way int8_fp32{"int8, the rest fp32", in_8_bits, "fp32"};
  Way int8_bf16{"int8, the rest bf16", in_8_bits, "bf16"};

  OwnWays(const StepCase& of, QuantizeScheme scheme)
      : whole(of, QuantizeScheme::none),
        stored_bf16(of, QuantizeScheme::none, "O2"),
        in_8_bits(of, scheme) {}
};

// Prints how both 8-bit ways compare, and the spread of the faster one, which is returned.
template <class Timed>
const Way& faster_int8(const Int8Asked& asked, const OwnWays& own, const Timed& timed) {
  const Paired rest = pair_up(asked.pairs, timed(own.int8_bf16), timed(own.int8_fp32));
  print("int8: the rest bf16 / the rest fp32", rest, 1e3, "ms");
  const Way& int8 = rest.ratio.median < 1 ? own.int8_bf16 : own.int8_fp32;
  print(int8.name + " / itself (the A/A spread)", pair_up(asked.pairs, timed(int8), timed(int8)),
        1e3, "ms");
  return int8;
}

// Weights and batch for the peers. The caller removes the file.
inline std::filesystem::path write_int8_start(const Evaluated& model, const StepCase& of) {
  TensorMap start;
  for (const auto& [name, tensor] : model.tensors()) start.set(name, tensor);
  start.set("batch.inputs", of.data.fields().at("inputs"));
  auto file = std::filesystem::temp_directory_path() /
              ("tanren-int8-" + std::to_string(::getpid()) + ".safetensors");
  write_safetensors(file, start);
  return file;
}

// A peer has our weights if its first two outputs are ours.
inline void check_peer(const Int8Asked& asked, const std::string& kind, const std::string& answer,
                       const at::Tensor& fp32) {
  std::istringstream words(answer);
  double took = 0, first = NAN, second = NAN;
  words >> took >> first >> second;
  const at::Tensor theirs = at::tensor({first, second}, at::kDouble);
  const double apart = distance(theirs, fp32[0].narrow(0, 0, 2));
  if (kind == "fp32") {
    asked.checks->near("first outputs of PyTorch's fp32 from ours", apart, 1e-3);
  } else {
    std::printf("  first outputs of %s from our fp32: %.2e apart\n", kind.c_str(), apart);
  }
}

inline void beside_peer(const Int8Asked& asked, const Predictions& of, const PeerGoal& with,
                        const Way& int8, const at::Tensor& fp32,
                        const std::filesystem::path& start) {
  const int64_t samples = fp32.size(0);
  try {
    PeerProcess peer({asked.python, TANREN_SOURCE_DIR "/benchmarks/peers/int8_torch.py", of.model,
                      with.kind, std::to_string(asked.threads), std::to_string(samples),
                      start.string()});
    check_peer(asked, with.kind, peer.answer(), fp32);
    const Paired against = pair_up(
        asked.pairs, [&] { return seconds([&] { (void)int8.predict(samples); }); },
        [&] { return peer.block(); });
    print(std::string("int8 / Python's ") + with.kind, against, 1e3, "ms");
    const bool is_first = samples == of.batches.front();
    judge(asked.processor, against.ratio.median, is_first ? with.goal : same_goal(1));
  } catch (const std::exception& error) {
    std::printf("%s is not measured: %s\n", with.kind, error.what());
  }
}

inline void predictions_part(const Int8Asked& asked, const Predictions& of) {
  std::vector<PeerGoal> peers = of.peers;
  if (!asked.peer.empty()) {
    std::erase_if(peers, [&](const PeerGoal& peer) { return asked.peer != peer.kind; });
    if (peers.empty()) std::printf("%s has no peer %s\n", of.model, asked.peer.c_str());
  }
  const StepCase chosen = evaluated_case(of.model, asked.is_small, asked.threads);
  const OwnWays own(chosen, of.scheme);
  const char* scheme = of.scheme == QuantizeScheme::dynamic ? "dynamic" : "static";
  const auto start =
      asked.python.empty() ? std::filesystem::path() : write_int8_start(own.whole, chosen);
  for (const int64_t samples : of.batches) {
    std::printf("%s: evaluation of the first %ld; int8: %s\n", chosen.about, samples, scheme);
    const at::Tensor fp32 = own.fp32.predict(samples).to(at::kDouble).contiguous();
    for (const Way* way : {&own.bf16, &own.bf16_weights, &own.int8_fp32, &own.int8_bf16}) {
      asked.checks->near(way->name + " from fp32", distance(way->predict(samples), fp32), 0.3);
    }
    const auto timed = [samples](const Way& way) {
      return std::function<double()>(
          [&way, samples] { return seconds([&] { (void)way.predict(samples); }); });
    };
    const Way& int8 = faster_int8(asked, own, timed);
    const bool is_first = samples == of.batches.front();
    for (const Way* way : {&own.fp32, &own.bf16, &own.bf16_weights}) {
      const Paired against = pair_up(asked.pairs, timed(int8), timed(*way));
      print("int8 / our " + way->name, against, 1e3, "ms");
      const Goal first = way == &own.fp32 ? Goal{} : of.of_bf16;
      judge(asked.processor, against.ratio.median, is_first ? first : same_goal(1));
    }
    if (asked.python.empty()) continue;
    for (const PeerGoal& peer : peers) beside_peer(asked, of, peer, int8, fp32, start);
  }
  if (!start.empty()) std::filesystem::remove(start);
}

// GPT-2 writes a text, token by token.
inline void generate_part(const Int8Asked& asked) {
  const int64_t prompt = asked.is_small ? 4 : 16, tokens = asked.is_small ? 6 : 128;
  const StepCase chosen = evaluated_case("gpt2", asked.is_small, asked.threads);
  const OwnWays own(chosen, QuantizeScheme::dynamic);
  std::printf("%s: %ld tokens after a prompt of %ld; ms a token; int8: dynamic\n",
              asked.is_small ? chosen.about : "GPT-2 124M", tokens, prompt);
  const auto written = [&](const Way& way) {
    return way.model->generate(way.parts, prompt, tokens);
  };
  const auto fp32 = written(own.fp32);
  for (const Way* way : {&own.bf16, &own.bf16_weights, &own.int8_fp32, &own.int8_bf16}) {
    const auto text = written(*way);
    asked.checks->holds(way->name + " writes all tokens", std::ssize(text) == prompt + tokens);
    const auto same = std::mismatch(text.begin(), text.end(), fp32.begin(), fp32.end()).first;
    std::printf("  %s: the first %ld tokens are those of fp32\n", way->name.c_str(),
                std::max<int64_t>(same - text.begin() - prompt, 0));
  }
  const auto timed = [&](const Way& way) {
    return std::function<double()>(
        [&] { return seconds([&] { (void)written(way); }) / static_cast<double>(tokens); });
  };
  const Way& int8 = faster_int8(asked, own, timed);
  for (const Way* way : {&own.fp32, &own.bf16, &own.bf16_weights}) {
    const Paired against = pair_up(asked.pairs, timed(int8), timed(*way));
    print("int8 / our " + way->name, against, 1e3, "ms");
    judge(asked.processor, against.ratio.median, way == &own.fp32 ? Goal{} : same_goal(0.6));
  }
}

}  // namespace tanren::bench
