// The words each choice goes by, ours first, then the spellings people bring from elsewhere.
#include <algorithm>

#include "config/config.h"
#include "config/table/option.h"

namespace lockstep::config {
namespace {

template <typename Enum>
Choice choice(Enum value, std::string_view name, std::vector<std::string_view> others = {}) {
  return {static_cast<std::int64_t>(value), name, std::move(others)};
}

template <typename Enum>
std::string_view name_in(Enum value) {
  for (const Choice& choice : choices_of(value)) {
    if (choice.number == static_cast<std::int64_t>(value)) return choice.name;
  }
  return "?";
}

}  // namespace

std::span<const Choice> choices_of(DType) {
  static const std::vector<Choice> choices = {
      choice(DType::f32, "f32", {"fp32", "float32", "float", "full", "float_32"}),
      choice(DType::f16, "f16", {"fp16", "float16", "half", "float_16"}),
      choice(DType::bf16, "bf16", {"bfloat16", "bfloat_16"}),
  };
  return choices;
}

std::span<const Choice> choices_of(Family) {
  static const std::vector<Choice> choices = {
      choice(Family::automatic, "auto"), choice(Family::llama, "llama"),     choice(Family::qwen2, "qwen2"),
      choice(Family::qwen3, "qwen3"),    choice(Family::mistral, "mistral"), choice(Family::olmo2, "olmo2"),
  };
  return choices;
}

std::span<const Choice> choices_of(Backend) {
  static const std::vector<Choice> choices = {
      choice(Backend::automatic, "auto"),    choice(Backend::single, "single", {"none"}),
      choice(Backend::cpu, "cpu", {"host"}), choice(Backend::gloo, "gloo"),
      choice(Backend::nccl, "nccl"),
  };
  return choices;
}

std::span<const Choice> choices_of(DeviceKind) {
  static const std::vector<Choice> choices = {
      choice(DeviceKind::automatic, "auto"),
      choice(DeviceKind::cuda, "cuda", {"gpu"}),
      choice(DeviceKind::cpu, "cpu"),
  };
  return choices;
}

std::span<const Choice> choices_of(Recompute) {
  static const Choice choices[] = {
      choice(Recompute::automatic, "auto"),
      choice(Recompute::none, "none", {"off", "false"}),
      choice(Recompute::norms, "norms", {"selective"}),
      choice(Recompute::qkv, "qkv"),
      choice(Recompute::blocks, "blocks", {"full", "on", "true"}),
  };
  return choices;
}

std::span<const Choice> choices_of(LrScaling) {
  static const std::vector<Choice> choices = {
      choice(LrScaling::none, "none"),
      choice(LrScaling::linear, "linear"),
      choice(LrScaling::sqrt, "sqrt", {"square_root"}),
  };
  return choices;
}

std::span<const Choice> choices_of(LrSchedule) {
  static const std::vector<Choice> choices = {
      choice(LrSchedule::constant, "constant", {"constant_with_warmup"}),
      choice(LrSchedule::linear, "linear", {"linear_with_warmup"}),
      choice(LrSchedule::cosine, "cosine", {"cosine_with_warmup", "cosine_with_min_lr"}),
      choice(LrSchedule::wsd, "wsd", {"warmup_stable_decay"}),
  };
  return choices;
}

std::span<const Choice> choices_of(DataKind) {
  static const std::vector<Choice> choices = {
      choice(DataKind::automatic, "auto"),     choice(DataKind::bin, "bin", {"tokens"}),
      choice(DataKind::text, "text", {"txt"}), choice(DataKind::random, "random"),
      choice(DataKind::stories, "stories"),    choice(DataKind::records, "records", {"json", "jsonl", "csv", "parquet"}),
  };
  return choices;
}

std::span<const Choice> choices_of(TokenType) {
  static const std::vector<Choice> choices = {
      choice(TokenType::u32, "u32", {"uint32"}),
      choice(TokenType::u16, "u16", {"uint16"}),
  };
  return choices;
}

std::span<const Choice> choices_of(ShardKind) {
  static const std::vector<Choice> choices = {
      choice(ShardKind::none, "none", {"no", "no_shard", "ddp", "off", "false", "0"}),
      choice(ShardKind::optimizer, "optimizer", {"zero1", "1"}),
      choice(ShardKind::gradients, "gradients", {"shard_grad_op", "zero2", "2"}),
      choice(ShardKind::full, "full", {"full_shard", "fsdp", "fsdp2", "zero3", "on", "true", "yes", "3"}),
  };
  return choices;
}

std::span<const Choice> choices_of(ReduceDType) {
  static const std::vector<Choice> choices = {
      choice(ReduceDType::automatic, "auto"),
      choice(ReduceDType::f32, "f32", {"fp32", "float32"}),
      choice(ReduceDType::gradient, "gradient", {"grad"}),
  };
  return choices;
}

std::span<const Choice> choices_of(RecordFormat) {
  static const std::vector<Choice> choices = {
      choice(RecordFormat::automatic, "auto"),
      choice(RecordFormat::messages, "messages", {"chat", "openai", "chat_template", "chatml"}),
      choice(RecordFormat::sharegpt, "sharegpt", {"conversations"}),
      choice(RecordFormat::alpaca, "alpaca", {"instruction"}),
      choice(RecordFormat::prompt_completion, "prompt_completion", {"completion", "input_output"}),
      choice(RecordFormat::text, "text", {"raw", "pretrain"}),
  };
  return choices;
}

std::span<const Choice> choices_of(TrainOn) {
  static const std::vector<Choice> choices = {
      choice(TrainOn::automatic, "auto"),
      choice(TrainOn::responses, "responses", {"assistant", "completions", "outputs"}),
      choice(TrainOn::all, "all", {"everything", "inputs"}),
      choice(TrainOn::last, "last", {"last_response"}),
      choice(TrainOn::whole_chats, "whole_chats"),
  };
  return choices;
}

std::span<const Choice> choices_of(PromptStyle) {
  static const std::vector<Choice> choices = {
      choice(PromptStyle::automatic, "auto"),
      choice(PromptStyle::alpaca, "alpaca"),
  };
  return choices;
}

std::span<const Choice> choices_of(TooLong) {
  static const std::vector<Choice> choices = {
      choice(TooLong::cut, "cut", {"truncate", "cut_end"}),
      choice(TooLong::cut_start, "cut_start", {"truncate_left", "left"}),
      choice(TooLong::skip, "skip", {"drop"}),
      choice(TooLong::error, "error", {"fail"}),
  };
  return choices;
}

std::span<const Choice> choices_of(BadRecord) {
  static const std::vector<Choice> choices = {
      choice(BadRecord::error, "error", {"fail"}),
      choice(BadRecord::skip, "skip", {"drop", "ignore"}),
  };
  return choices;
}

std::span<const Choice> choices_of(Optimizer) {
  static const std::vector<Choice> choices = {
      choice(Optimizer::adamw, "adamw", {"adam", "adamw_torch", "adamw_torch_fused", "adamw_hf", "fused_adamw"}),
      choice(Optimizer::adamw_8bit, "adamw_8bit", {"adamw_bnb_8bit", "paged_adamw_8bit", "adam_8bit"}),
      choice(Optimizer::sgd, "sgd", {"sgd_momentum"}),
      choice(Optimizer::lion, "lion", {"lion_32bit", "lion_pytorch"}),
      choice(Optimizer::adafactor, "adafactor"),
      choice(Optimizer::muon, "muon"),
  };
  return choices;
}

std::span<const Choice> choices_of(StateDType) {
  static const std::vector<Choice> choices = {
      choice(StateDType::f32, "f32", {"fp32", "float32"}),
      choice(StateDType::bf16, "bf16", {"bfloat16"}),
  };
  return choices;
}

std::span<const Choice> choices_of(RopeScaling) {
  static const std::vector<Choice> choices = {
      choice(RopeScaling::none, "none", {"default"}),
      choice(RopeScaling::linear, "linear"),
      choice(RopeScaling::llama3, "llama3"),
  };
  return choices;
}

std::optional<DType> dtype_named(std::string_view name) {
  for (const Choice& choice : choices_of(DType{})) {
    if (choice.name == name || std::find(choice.others.begin(), choice.others.end(), name) != choice.others.end())
      return static_cast<DType>(choice.number);
  }
  return std::nullopt;
}

std::string_view name_of(Family family) { return name_in(family); }
std::string_view name_of(DType dtype) { return name_in(dtype); }
std::string_view name_of(Backend backend) { return name_in(backend); }
std::string_view name_of(DeviceKind kind) { return name_in(kind); }
std::string_view name_of(LrScaling scaling) { return name_in(scaling); }
std::string_view name_of(Recompute recompute) { return name_in(recompute); }
std::string_view name_of(LrSchedule schedule) { return name_in(schedule); }
std::string_view name_of(DataKind kind) { return name_in(kind); }
std::string_view name_of(TokenType type) { return name_in(type); }
std::string_view name_of(ReduceDType type) { return name_in(type); }
std::string_view name_of(ShardKind kind) { return name_in(kind); }
std::string_view name_of(RecordFormat format) { return name_in(format); }
std::string_view name_of(TrainOn on) { return name_in(on); }
std::string_view name_of(Optimizer optimizer) { return name_in(optimizer); }
std::string_view name_of(StateDType dtype) { return name_in(dtype); }
std::string_view name_of(RopeScaling scaling) { return name_in(scaling); }

}  // namespace lockstep::config
