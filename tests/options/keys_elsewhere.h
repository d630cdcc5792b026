// Keys that another test shows to act. Used by options_test.cpp.
#pragma once

#include <map>
#include <string>

namespace tanren {

// Keys whose effect no run or plan of options_test can show, each with the test that shows it.
inline const std::map<std::string, std::string> kElsewhere = {
    {"run.name", "cli_test: names the folder"},
    {"model.options", "readme_test and own_model: handed to registered kinds"},
    {"model.task", "bert_test, lstm_test: the head of each task"},
    {"model.memory_format", "memory_format_test: weights lie otherwise, files do not"},
    {"model.from_hf", "pretrained_test"},
    {"model.init_skip", "transfer_test"},
    {"model.init_rename", "transfer_test"},
    {"optimizer.init_from", "torch_state_test"},
    {"data.workers", "loader_test: changes no batch, by promise"},
    {"data.prefetch", "loader_test: changes no batch, by promise"},
    {"data.train.padding", "text_table_test: changes widths and no number, by promise"},
    {"data.train.path", "every row but the synthetic ones reads it"},
    {"guard.growth_steps", "leak_detector_test, and own_examples_test on own_loop"},
    {"evaluate.checkpoint", "best_test: what tanren eval reads"},
    {"metrics.console_every", "console_sink_test"},
    {"run.debug", "tests/own/debug_test: shows the first step and changes no number"},
    {"generate.prompt", "gpt2_test: a sample by every option"},
    {"generate.tokens", "gpt2_test: a sample by every option"},
    {"generate.temperature", "gpt2_test: a sample by every option"},
    {"generate.top_k", "gpt2_test: a sample by every option"},
    {"generate.top_p", "gpt2_test: a sample by every option"},
    {"generate.seed", "gpt2_test: a sample by every option"},
    {"generate.num_beams", "gpt2_test: a sample by every option"},
    {"generate.length_penalty", "beam_search_test: as in transformers"},
    {"generate.stop_token", "gpt2_test: a sample by every option"},
    {"predict.scores", "predict_test: writes the score of every class if it is asked to"},
    {"predict.broken", "predict_test: leaves null in place of broken rows"},
    {"metrics.tensorboard_every", "tensorboard_sink_test"},
    {"sweep.trials", "study_test: a sweep starts so many"},
    {"sweep.metric", "leaderboard_test"},
    {"sweep.mode", "corners_test: the direction of a study"},
    {"sweep.sampler", "sampler_test"},
    {"sweep.scheduler", "scheduler_test"},
    {"sweep.first_rung", "scheduler_test"},
    {"sweep.reduction", "scheduler_test"},
    {"sweep.interval", "scheduler_test"},
    {"sweep.concurrent", "sweep_parts_test: shares of trials at a time"},
    {"sweep.devices", "sweep_parts_test: shares of trials at a time"},
    {"sweep.timeout", "sweep_test: a trial that hangs"},
    {"sweep.keep", "sweep_test: whose checkpoints stay"},
    {"sweep.find", "find_test"},
    {"sweep.confirm", "sweep_test: the best with other seeds"},
    {"sweep.space", "corners_test"},
    {"data.encoding", "day_test: a text that is no UTF-8"},
};

}  // namespace tanren
