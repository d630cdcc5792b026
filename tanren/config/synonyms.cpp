#include "tanren/config/synonyms.h"

#include "tanren/base/names.h"

#include <algorithm>
#include <utility>

namespace tanren {

namespace {
constexpr std::string_view kAccumulation =
    "batch.microbatch (batch.global_batch / batch.microbatch microsteps accumulate to one update)";
constexpr std::string_view kLaunched = "no key: tanren launch -n, or any other launcher, says it";

constexpr std::string_view kMicrobatch =
    "batch.microbatch (an update takes batch.global_batch samples, of all ranks and microbatches)";

constexpr std::string_view kPrecision =
    "precision.mode (of the arithmetic; weights stay fp32, with fp64 they are fp64)";

constexpr std::string_view kOfEvaluation =
    "no key: an evaluation computes as precision.mode says, and keeps fp32 weights";

constexpr KeySynonym kSynonyms[] = {
    {"fp16", "precision.mode = \"fp16\""},
    {"bf16", "precision.mode = \"bf16\""},
    {"amp", "precision.mode = \"bf16\" or \"fp16\""},
    {"mixed_precision", "precision.mode"},
    {"tf32", "precision.matmul = \"high\""},
    {"precision", "precision.mode"},
    {"freeze_layers", "model.freeze (patterns of parameters)"},
    {"freeze_backbone", "model.freeze (patterns of parameters)"},
    {"trainable_layers", "model.freeze (patterns of what is not trained)"},
    {"unfreeze_at_epoch", "[[model.unfreeze]] with parameters and step (in updates)"},
    {"unfreeze_backbone_at_epoch", "[[model.unfreeze]] with parameters and step (in updates)"},
    {"dtype", kPrecision},
    {"torch_dtype", kPrecision},
    {"half_precision_backend", "precision.mode"},
    {"fp16_full_eval", kOfEvaluation},
    {"bf16_full_eval", kOfEvaluation},
    {"float32_matmul_precision", "precision.matmul"},
    {"allow_tf32", "precision.matmul = \"high\""},
    {"opt_level", "precision.mode"},
    {"gradient_accumulation_steps", kAccumulation},
    {"accumulate_grad_batches", kAccumulation},
    {"accumulation_steps", kAccumulation},
    {"grad_accum_steps", kAccumulation},
    {"per_device_train_batch_size", kMicrobatch},
    {"per_device_eval_batch_size", "evaluate.batch"},
    {"train_micro_batch_size_per_gpu", kMicrobatch},
    {"micro_batch_size", kMicrobatch},
    {"train_batch_size", "batch.global_batch (of all ranks together)"},
    {"batch_size", "batch.global_batch (of all ranks together)"},
    {"batch.size", "batch.global_batch"},
    {"eval_batch_size", "evaluate.batch"},
    {"effective_batch_size", "batch.global_batch"},
    {"lr", "optimizer.learning_rate"},
    {"learning_rate", "optimizer.learning_rate"},
    {"base_lr", "optimizer.learning_rate"},
    {"max_lr", "optimizer.learning_rate"},
    {"optim", "optimizer.kind"},
    {"optimizer_type", "optimizer.kind"},
    {"wd", "optimizer.weight_decay"},
    {"epsilon", "optimizer.eps"},
    {"adam_beta1", "optimizer.beta1"},
    {"adam_beta2", "optimizer.beta2"},
    {"betas", "optimizer.beta1 and optimizer.beta2"},
    {"adam_epsilon", "optimizer.eps"},
    {"weight_decay", "optimizer.weight_decay"},
    {"momentum", "optimizer.momentum"},
    {"lr_scheduler_type", "schedule.kind"},
    {"lr_scheduler", "schedule.kind"},
    {"warmup_steps", "schedule.warmup_steps"},
    {"warmup_ratio", "schedule.warmup_steps (a count of updates)"},
    {"num_warmup_steps", "schedule.warmup_steps"},
    {"scheduler", "schedule.kind"},
    {"min_lr", "schedule.final_fraction (a share of the learning rate)"},
    {"min_lr_rate", "schedule.final_fraction"},
    {"warmup", "schedule.warmup_steps"},
    {"momentum_buffer", "optimizer.momentum"},
    {"adam_amsgrad", "optimizer.amsgrad"},
    {"adamw_8bit", "optimizer.state = \"8bit\""},
    {"gradient_checkpointing", "memory.recompute"},
    {"centred", "optimizer.centered"},
    {"lr_decay", "optimizer.learning_rate_decay"},
    {"layer_wise_lr_decay", "optimizer.layer_decay"},
    {"layerwise_learning_rate_decay", "optimizer.layer_decay"},
    {"layer_lr_decay", "optimizer.layer_decay"},
    {"llrd", "optimizer.layer_decay"},
    {"ns_steps", "optimizer.newton_schulz_steps"},
    {"adjust_lr_fn", "optimizer.adjust_learning_rate"},
    {"decay_rate", "optimizer.beta2_decay (adafactor), or schedule.factor (of step)"},
    {"gamma", "schedule.factor"},
    {"lr_gamma", "schedule.factor"},
    {"num_cycles", "schedule.cycles (of cosine_with_restarts)"},
    {"t_mult", "schedule.cycle_growth"},
    {"pct_start", "schedule.warmup_fraction"},
    {"num_decay_steps", "schedule.decay_steps"},
    {"eta_min", "schedule.final_fraction (a share of the learning rate)"},
    {"lr_end", "schedule.final_fraction (a share of the learning rate)"},
    {"anneal_strategy", "schedule.shape"},
    {"decay_type", "schedule.shape"},
    {"clip_grad_value", "clip.value"},
    {"clip_value", "clip.value"},
    {"max_grad_norm", "clip.norm"},
    {"gradient_clip_val", "clip.norm, or clip.value where gradient_clip_algorithm is \"value\""},
    {"clip_grad_norm", "clip.norm"},
    {"grad_clip", "clip.norm"},
    {"num_train_epochs", "run.epochs"},
    {"max_epochs", "run.epochs"},
    {"num_epochs", "run.epochs"},
    {"epochs", "run.epochs"},
    {"max_steps", "run.steps"},
    {"steps", "run.steps"},
    {"seed", "run.seed"},
    {"random_seed", "run.seed"},
    {"manual_seed", "run.seed"},
    {"run_name", "run.name"},
    {"experiment_name", "run.name"},
    {"accelerator", "run.device"},
    {"use_cpu", "run.device = \"cpu\""},
    {"no_cuda", "run.device = \"cpu\""},
    {"num_threads", "run.threads"},
    {"full_determinism", "run.deterministic"},
    {"label_smoothing_factor", "model.label_smoothing"},
    {"criterion", "model.loss"},
    {"n_layer", "model.num_layers"},
    {"num_hidden_layers", "model.num_layers"},
    {"n_head", "model.num_heads"},
    {"num_attention_heads", "model.num_heads"},
    {"n_embd", "model.hidden_size"},
    {"d_model", "model.hidden_size"},
    {"n_inner", "model.intermediate_size"},
    {"n_positions", "model.context_length"},
    {"n_ctx", "model.context_length"},
    {"block_size", "model.context_length"},
    {"max_position_embeddings", "model.context_length"},
    {"embd_pdrop", "model.embedding_dropout"},
    {"attn_pdrop", "model.attention_dropout"},
    {"attention_probs_dropout_prob", "model.attention_dropout"},
    {"resid_pdrop", "model.residual_dropout"},
    {"hidden_dropout_prob",
     "model.dropout (of every dropout; model.attention_dropout stands above it)"},
    {"hidden_act", "model.activation"},
    {"type_vocab_size", "model.token_types"},
    {"pad_token_id", "model.pad_token"},
    {"padding_idx", "model.pad_token"},
    {"num_labels", "model.outputs"},
    {"embedding_dim", "model.embedding_size"},
    {"embed_dim", "model.embedding_size"},
    {"layer_norm_epsilon", "model.layer_norm_eps"},
    {"model_name_or_path", "model.from_hf"},
    {"pretrained_model_name_or_path", "model.from_hf"},
    {"pretrained", "model.from_hf (its name or folder)"},
    {"from_pretrained", "model.from_hf"},
    {"max_new_tokens", "generate.tokens"},
    {"num_samples", "no key: tanren eval writes one sample, of generate.tokens tokens"},
    {"beams", "generate.num_beams"},
    {"beam_size", "generate.num_beams"},
    {"beam_width", "generate.num_beams"},
    {"do_sample", "generate.temperature (0 is greedy)"},
    {"train_file", "data.train.path"},
    {"validation_file", "data.eval.path"},
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
    {"save_top_k", "checkpoint.best"},
    {"load_best_model_at_end", "checkpoint.best = 1 (exported as model.safetensors)"},
    {"metric_for_best_model", "checkpoint.metric"},
    {"greater_is_better", "checkpoint.mode = \"max\""},
    {"monitor", "checkpoint.metric, or early_stop.metric"},
    {"early_stopping_patience", "early_stop.patience"},
    {"early_stopping", "early_stop.patience"},
    {"early_stopping_threshold", "early_stop.min_delta"},
    {"early_stopping_rounds", "early_stop.patience"},
    {"patience", "early_stop.patience, or schedule.patience"},
    {"ema", "average.kind = \"ema\""},
    {"ema_decay", "average.decay"},
    {"model_ema", "average.kind = \"ema\""},
    {"model_ema_decay", "average.decay"},
    {"swa", "average.kind = \"swa\""},
    {"swa_start", "average.start"},
    {"swa_epoch_start", "average.start (steps, or a share of the run)"},
    {"swa_lr", "average.learning_rate"},
    {"swa_lrs", "average.learning_rate"},
    {"update_bn", "average.buffers = \"estimate\""},
    {"eval_steps", "evaluate.every"},
    {"val_check_interval", "evaluate.every (in applied updates)"},
    {"eval_interval", "evaluate.every"},
    {"save_interval", "checkpoint.every"},
    {"log_interval", "metrics.console_every"},
    {"report_to", "metrics.tensorboard"},
    {"logging_dir", "no key: tensorboard/ of the run folder"},
    {"compute_metrics", "evaluate.metrics"},
    {"resume_from_checkpoint", "no key: tanren run on the run folder resumes"},
    {"initial_scale_power", "precision.initial_scale (the scale itself, not its power)"},
    {"loss_scale_window", "precision.growth_interval"},
    {"min_loss_scale", "precision.min_scale"},
    {"init_scale", "precision.initial_scale"},
    {"loss_scale", "precision.loss_scale and precision.initial_scale"},
    {"channels_last", "model.memory_format = \"channels_last\""},
    {"data_format", "model.memory_format"},
    {"nhwc", "model.memory_format = \"channels_last\""},
    {"pytorch_alloc_conf", "memory.allocator"},
    {"activation_checkpointing", "memory.recompute"},
    {"activation_offloading", "memory.offload"},
    {"enable_activation_offloading", "memory.offload"},
    {"cpu_offload", "memory.offload (activations)"},
    {"save_on_cpu", "memory.offload"},
    {"chunked_cross_entropy", "model.loss_chunk"},
    {"torch_empty_cache_steps", "memory.release_cache"},
    {"empty_cache", "memory.release_cache"},
    {"auto_find_batch_size", "memory.recovery (on unless it is off)"},
    {"ddp", "parallel.ranks"},
    {"strategy", "parallel.ranks"},
    {"distributed", "parallel.ranks"},
    {"data_parallel", "parallel.ranks = \"threads\" (in one process), or \"processes\""},
    {"world_size", kLaunched},
    {"num_processes", kLaunched},
    {"nproc_per_node", kLaunched},
    {"num_nodes", kLaunched},
    {"nnodes", kLaunched},
    {"rank", kLaunched},
    {"local_rank", kLaunched},
    {"gpus", "tanren launch -n; or parallel.devices with parallel.ranks = \"threads\""},
    {"num_gpus", "tanren launch -n; or parallel.devices with parallel.ranks = \"threads\""},
    {"device_ids", "parallel.devices"},
    {"ddp_backend", "parallel.backend"},
    {"dist_backend", "parallel.backend"},
    {"process_group_backend", "parallel.backend"},
    {"init_method", "parallel.rendezvous"},
    {"dist_url", "parallel.rendezvous"},
    {"rdzv_endpoint", "parallel.rendezvous = \"tcp://host:port\""},
    {"master_addr", "parallel.rendezvous = \"tcp://host:port\""},
    {"master_port", "parallel.rendezvous = \"tcp://host:port\""},
    {"ddp_timeout", "parallel.timeout"},
    {"dist_timeout", "parallel.timeout"},
    {"bucket_cap_mb", "parallel.bucket_mb"},
    {"ddp_bucket_cap_mb", "parallel.bucket_mb"},
    {"reduce_bucket_size", "parallel.bucket_mb (in MiB, not elements)"},
    {"overlap_comm", "parallel.overlap"},
    {"ddp_comm_hook", "parallel.compress"},
    {"gradient_compression", "parallel.compress"},
    {"communication_data_type", "parallel.compress"},
    {"broadcast_buffers", "parallel.buffers = \"first\""},
    {"ddp_broadcast_buffers", "parallel.buffers = \"first\""},
    {"sync_bn", "parallel.buffers = \"synchronised\""},
    {"sync_batchnorm", "parallel.buffers = \"synchronised\""},
    {"sync_batch_norm", "parallel.buffers = \"synchronised\""},
    {"find_unused_parameters", "no key: parameters without a gradient hold up nobody"},
    {"ddp_find_unused_parameters", "no key: parameters without a gradient hold up nobody"},
    {"gradient_as_bucket_view", "no key: gradients always are views of the buckets"},
    {"zero_stage", "parallel.zero"},
    {"zero_optimization", "parallel.zero"},
    {"fsdp", "parallel.zero (optimizer state, and gradients; weights stay whole)"},
    {"loss_spike_threshold", "guard.spike_z (in deviations; tells of it, and skips nothing)"},
    {"skip_loss_spike", "guard.spike_z (tells of it, and skips nothing)"},
    {"num_classes", "model.outputs"},
    {"arch", "model.kind and model.size"},
    {"benchmark", "precision.cudnn_benchmark"},
    {"image_size", "data.train.size"},
    {"img_size", "data.train.size"},
    {"crop_size", "data.train.size"},
    {"resize_size", "data.train.resize"},
    {"hflip", "data.train.flip (a probability)"},
    {"horizontal_flip", "data.train.flip (a probability)"},
    {"random_flip", "data.train.flip (a probability)"},
    {"color_jitter", "data.train.color = [brightness, contrast, saturation, hue]"},
    {"image_mean", "data.train.mean"},
    {"image_std", "data.train.std"},
    {"random_resized_crop", "data.train.crop = \"random\""},
    {"seq_len", "data.train.context"},
    {"seq_length", "data.train.context"},
    {"sequence_length", "data.train.context"},
    {"text_column", "data.train.text"},
    {"text_column_name", "data.train.text"},
    {"label_column", "data.train.label"},
    {"label_column_name", "data.train.label"},
    {"label_names", "data.train.class_names"},
    {"id2label", "data.train.class_names"},
    {"tokenizer_name", "data.train.tokenizer"},
    {"tokenizer_name_or_path", "data.train.tokenizer"},
    {"pad_to_max_length", "data.train.padding = \"fixed\""},
    {"data.train.file", "data.train.path"},
    {"data.eval.file", "data.eval.path"},
    {"clip.grad", "clip.norm"},
    {"memory.max", "memory.limit"},
    {"max_memory", "memory.limit"},
    {"max_seq_length", "data.train.context"},
    {"max_seq_len", "data.train.context"},
    {"eos_token_id", "data.train.document_end, or generate.stop_token"},
    {"validation_split", "data.train.part and data.eval.part"},
    {"val_split", "data.train.part and data.eval.part"},
    {"validation_split_percentage", "data.train.part and data.eval.part"},
    {"center_crop", "data.train.crop = \"center\""},
    {"n_critic", "objectives.NAME.every (of the generator; the critic is in turn at every batch)"},
};

std::string_view last_part(std::string_view key) {
  const auto dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

std::string folded(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return result;
}

// The key of `keys` that people mean by `key`; empty if none is close.
std::string nearest_key(const std::string& key, const std::vector<std::string>& keys) {
  constexpr size_t kTelling = 4;  // letters: shorter names are close to nearly every name
  const std::string last(last_part(key));
  const std::string prefix = key.substr(0, key.size() - last.size());
  std::vector<std::string> same_name, in_section, last_parts, sharing;
  for (const auto& known : keys) {
    const std::string name(last_part(known));
    last_parts.push_back(name);
    if (name == last) same_name.push_back(known);
    if (known != prefix + name) continue;
    in_section.push_back(name);
    if (name == last) return known;
    const bool contains =
        name.find(last) != std::string::npos || last.find(name) != std::string::npos;
    if (contains && std::min(name.size(), last.size()) >= kTelling) sharing.push_back(name);
  }
  const auto closest = [](const std::string& asked, const std::vector<std::string>& names) {
    const auto best = nearest(asked, names);
    return best.empty() && !names.empty() ? names.front() : best;
  };
  // The right name in another section, a partial name in this section, or both.
  const auto elsewhere = closest(key, same_name);
  const auto here = sharing.empty() ? "" : prefix + closest(last, sharing);
  if (!elsewhere.empty() && !here.empty()) return here + " or " + elsewhere;
  if (!elsewhere.empty() || !here.empty()) return elsewhere + here;
  // A typing error: at equal distance, names in its own section come first.
  if (last.size() < kTelling) last_parts = in_section;
  const auto best = nearest(last, {nearest(last, in_section), nearest(last, last_parts)});
  if (best.empty()) return in_section.empty() ? nearest(key, keys) : "";
  if (std::find(in_section.begin(), in_section.end(), best) != in_section.end()) {
    return prefix + best;
  }
  const auto found = std::find(last_parts.begin(), last_parts.end(), best);
  return keys[static_cast<size_t>(found - last_parts.begin())];
}

}  // namespace

std::span<const KeySynonym> key_synonyms() { return kSynonyms; }

std::optional<std::string> synonym(std::string_view key, std::string_view value) {
  const std::string whole = folded(key);
  for (const auto& [name, ours] : kSynonyms) {
    if (name != whole && name != last_part(whole)) continue;
    if (const auto word = word_synonym(ours, value)) {
      return std::string(ours) + " = \"" + *word + "\"";
    }
    // The advice is for the value true.
    const bool is_value = ours.find(" = ") != std::string_view::npos;
    return std::string(ours) + (is_value && folded(value) == "false" ? " for true" : "");
  }
  return std::nullopt;
}

std::string advice(const std::string& key, const std::vector<std::string>& keys,
                   std::string_view value) {
  if (const auto known = synonym(key, value)) return "; here it is " + *known;
  const auto best = nearest_key(folded(key), keys);
  if (!best.empty()) return "; nearest: " + best;
  const auto section = key.substr(0, key.size() - last_part(key).size());
  const bool known = !section.empty() && std::any_of(keys.begin(), keys.end(), [&](const auto& k) {
    return k == section + std::string(last_part(k));
  });
  return known ? "; see tanren help " + section.substr(0, section.size() - 1) : "; see tanren help";
}

std::string nearest_section(const std::string& name, const std::vector<std::string>& keys) {
  std::vector<std::string> sections;
  for (const auto& key : keys) {
    const auto section = key.substr(0, key.rfind('.'));
    if (sections.empty() || sections.back() != section) sections.push_back(section);
  }
  return nearest(folded(name), sections);
}

}  // namespace tanren
