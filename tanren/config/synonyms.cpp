#include "tanren/config/synonyms.h"

#include <utility>

namespace tanren {

namespace {
constexpr std::pair<std::string_view, std::string_view> kSynonyms[] = {
    {"fp16", "precision.mode = \"fp16\""},
    {"bf16", "precision.mode = \"bf16\""},
    {"amp", "precision.mode = \"bf16\" or \"fp16\""},
    {"mixed_precision", "precision.mode"},
    {"tf32", "precision.matmul = \"high\""},
    {"precision", "precision.mode"},
    {"dtype", "precision.mode"},
    {"opt_level", "precision.mode"},
    {"gradient_accumulation_steps", "batch.global_batch with batch.microbatch (their ratio)"},
    {"accumulate_grad_batches", "batch.global_batch with batch.microbatch (their ratio)"},
    {"per_device_train_batch_size", "batch.microbatch"},
    {"per_device_eval_batch_size", "evaluate.batch"},
    {"train_micro_batch_size_per_gpu", "batch.microbatch"},
    {"micro_batch_size", "batch.microbatch"},
    {"train_batch_size", "batch.global_batch"},
    {"batch_size", "batch.global_batch"},
    {"lr", "optimizer.learning_rate"},
    {"learning_rate", "optimizer.learning_rate"},
    {"optim", "optimizer.kind"},
    {"adam_beta1", "optimizer.beta1"},
    {"adam_beta2", "optimizer.beta2"},
    {"betas", "optimizer.beta1 and optimizer.beta2"},
    {"adam_epsilon", "optimizer.eps"},
    {"weight_decay", "optimizer.weight_decay"},
    {"momentum", "optimizer.momentum"},
    {"lr_scheduler_type", "schedule.kind"},
    {"lr_scheduler", "schedule.kind"},
    {"warmup_steps", "schedule.warmup_steps"},
    {"warmup", "schedule.warmup_steps"},
    {"max_grad_norm", "clip.norm"},
    {"gradient_clip_val", "clip.norm"},
    {"clip_grad_norm", "clip.norm"},
    {"grad_clip", "clip.norm"},
    {"num_train_epochs", "run.epochs"},
    {"max_epochs", "run.epochs"},
    {"num_epochs", "run.epochs"},
    {"epochs", "run.epochs"},
    {"max_steps", "run.steps"},
    {"steps", "run.steps"},
    {"seed", "run.seed"},
    {"device", "run.device"},
    {"output_dir", "--out on the command line"},
    {"default_root_dir", "--out on the command line"},
    {"num_workers", "data.workers"},
    {"dataloader_num_workers", "data.workers"},
    {"prefetch_factor", "data.prefetch"},
    {"drop_last", "data.last = \"drop\""},
    {"dataloader_drop_last", "data.last = \"drop\""},
    {"shuffle", "data.shuffle"},
    {"logging_steps", "metrics.console_every"},
    {"log_every_n_steps", "metrics.console_every"},
    {"save_steps", "checkpoint.every"},
    {"every_n_train_steps", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"save_top_k", "checkpoint.keep"},
    {"eval_steps", "evaluate.every"},
    {"val_check_interval", "evaluate.every"},
    {"init_scale", "precision.initial_scale"},
    {"loss_scale", "precision.loss_scale and precision.initial_scale"},
    {"num_classes", "model.outputs"},
    {"benchmark", "precision.cudnn_benchmark"},
};
}  // namespace

std::optional<std::string> synonym(std::string_view key) {
  const auto dot = key.rfind('.');
  const auto last = dot == std::string_view::npos ? key : key.substr(dot + 1);
  for (const auto& [name, advice] : kSynonyms) {
    if (name == last) return std::string(advice);
  }
  return std::nullopt;
}

}  // namespace tanren
