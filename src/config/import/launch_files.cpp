// Files that say how ranks are started and how memory is shared, not what is trained: accelerate's and DeepSpeed's.
#include <array>

#include "base/text.h"
#include "config/import/table.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

constexpr std::string_view cloud = "ranks run on machines of one's own";

void distributed_type(Importer& to, const YAML::Node& value) {
  const std::string kind = import_word(value);
  if (kind == "no" || kind == "multi_gpu" || kind == "multi_cpu") return to.ignore("ranks hold the whole model each");
  if (const YAML::Node section = to.file()[kind + "_config"]; section && !import_is_off(section))
    return to.ignore("parallel.shard, as its section says");
  if (kind == "fsdp") return to.set("parallel.shard", "full");
  if (kind == "deepspeed") return to.set("parallel.shard", "gradients");
  to.refuse(kind == "megatron_lm" ? one_axis : "GPUs and CPUs only");
}

void mixed_precision(Importer& to, const YAML::Node& value) {
  const std::string word = import_word(value);
  if (word == "bf16") return to.set("model.dtype", "bf16");
  if (word == "fp16") return to.set("model.dtype", "f16");
  if (word == "fp8") return to.set("trainer.fp8", "true");
  word == "no" ? to.ignore("off: the model's folder says it") : to.refuse("there are no, bf16, fp16 and fp8");
}

void processes(Importer& to, const YAML::Node& value) {
  const auto all = base::parse_integer(import_text(value)),
             machines = base::parse_integer(to.has("num_machines") ? to.text("num_machines") : "1");
  if (!all || !machines || *machines < 1 || *all % *machines != 0) return to.refuse("must be a multiple of num_machines");
  to.set("parallel.ranks", std::to_string(*all / *machines));
}

void gpu_ids(Importer& to, const YAML::Node& value) {
  import_word(value) == "all" ? to.ignore("as here") : to.set("trainer.distributed.gpu_ids", value);
}

// "auto" leaves a value to the TrainingArguments beside the file.
bool left_open(Importer& to, const YAML::Node& value) {
  if (import_word(value) != "auto") return false;
  to.ignore("left to the training arguments");
  return true;
}
template <const char* ours>
void unless_auto(Importer& to, const YAML::Node& value) {
  if (!left_open(to, value)) to.set(ours, value);
}
constexpr char batch[] = "trainer.batch_size", global_batch[] = "trainer.global_batch_size",
               accumulation[] = "trainer.gradient_accumulation", clipping[] = "trainer.max_grad_norm", rate[] = "trainer.learning_rate",
               epsilon[] = "trainer.epsilon", decay[] = "trainer.weight_decay", warmup[] = "trainer.warmup_steps",
               momentum[] = "trainer.momentum";

void half(Importer& to, const YAML::Node& value, const char* dtype) {
  const YAML::Node enabled = value.IsMap() ? value["enabled"] : value;
  if (!enabled || left_open(to, enabled)) return;
  read_boolean(import_text(enabled)).value_or(false) ? to.set("model.dtype", dtype) : to.ignore("off");
}
void bf16(Importer& to, const YAML::Node& value) { half(to, value, "bf16"); }
void fp16(Importer& to, const YAML::Node& value) { half(to, value, "f16"); }

void optimizer_type(Importer& to, const YAML::Node& value) {
  const std::string name = import_word(value);
  if (name == "adamw" || name == "adam") return to.set("trainer.optimizer", "adamw");
  if (name == "lion" || name == "sgd" || name == "muon") return to.set("trainer.optimizer", name);
  to.refuse("choose trainer.optimizer: adamw, adamw_8bit, lion, sgd, adafactor or muon");
}
void deepspeed_betas(Importer& to, const YAML::Node& value) {
  if (left_open(to, value)) return;
  if (!value.IsSequence() || value.size() != 2) return to.refuse("must be two numbers");
  to.set("trainer.beta1", value[0]);
  to.set("trainer.beta2", value[1]);
}
constexpr std::array optimizer_parameters = std::to_array<ImportRow>({
    converted("lr", "trainer.learning_rate", unless_auto<rate>),
    converted("betas", "trainer.beta1, trainer.beta2", deepspeed_betas),
    converted("eps", "trainer.epsilon", unless_auto<epsilon>),
    converted("weight_decay", "trainer.weight_decay", unless_auto<decay>),
    converted("momentum", "trainer.momentum", unless_auto<momentum>),
    ignored("torch_adam", own_kernels),
    ignored("adam_w_mode", "weight decay is decoupled"),
    ignored("bias_correction", "always"),
});
void optimizer_params(Importer& to, const YAML::Node& value) {
  value.IsMap() ? to.walk("optimizer.params", value, optimizer_parameters) : to.refuse("must be a map");
}
constexpr std::array deepspeed_optimizer_rows = std::to_array<ImportRow>({
    converted("type", "trainer.optimizer", optimizer_type),
    converted("params", "trainer.learning_rate, trainer.weight_decay", optimizer_params),
});
void deepspeed_optimizer(Importer& to, const YAML::Node& value) {
  value.IsMap() ? to.walk("optimizer", value, deepspeed_optimizer_rows) : to.refuse("must be a map");
}

void schedule_type(Importer& to, const YAML::Node& value) {
  const std::string name = import_word(value);
  if (name == "warmupdecaylr") return to.set("trainer.lr_schedule", "linear");
  if (name == "warmuplr") return to.set("trainer.lr_schedule", "constant");
  if (name == "warmupcosinelr") return to.set("trainer.lr_schedule", "cosine");
  to.refuse("choose trainer.lr_schedule: constant, linear, cosine or wsd");
}
void total_steps(Importer& to, const YAML::Node& value) {
  if (!left_open(to, value)) to.set("trainer.max_steps", value);
}
void min_rate(Importer& to, const YAML::Node& value) {
  if (left_open(to, value)) return;
  import_is_off(value) ? to.ignore("as here") : to.refuse("warm-up begins at 0");
}
constexpr std::array schedule_parameters = std::to_array<ImportRow>({
    converted("warmup_num_steps", "trainer.warmup_steps", unless_auto<warmup>),
    converted("warmup_max_lr", "trainer.learning_rate", unless_auto<rate>),
    converted("warmup_min_lr", "", min_rate),
    converted("warmup_min_ratio", "", min_rate),
    copied("cos_min_ratio", "trainer.min_lr_ratio"),
    converted("total_num_steps", "trainer.max_steps", total_steps),
    only("warmup_type", "linear", "the rate rises along a line, not a logarithm"),
    only("last_batch_iteration", "-1", "a run goes on where its checkpoint ended"),
});
void schedule_params(Importer& to, const YAML::Node& value) {
  value.IsMap() ? to.walk("scheduler.params", value, schedule_parameters) : to.refuse("must be a map");
}
constexpr std::array deepspeed_schedule_rows = std::to_array<ImportRow>({
    converted("type", "trainer.lr_schedule", schedule_type),
    converted("params", "trainer.warmup_steps", schedule_params),
});
void deepspeed_scheduler(Importer& to, const YAML::Node& value) {
  if (!value.IsMap()) return to.refuse("must be a map");
  to.walk("scheduler", value, deepspeed_schedule_rows);
  const YAML::Node type = value["params"] ? value["params"]["warmup_type"] : YAML::Node();
  if (!type || import_word(type) != "linear") {
    to.enter("scheduler.params.warmup_type", YAML::Node(""));
    to.note("the rate rises along a line here; along a logarithm in DeepSpeed, where nothing else is said");
  }
}

constexpr std::array accelerate_rows = std::to_array<ImportRow>({
    only("compute_environment", "local_machine", cloud),
    converted("distributed_type", "parallel.shard", distributed_type),
    converted("mixed_precision", "model.dtype", mixed_precision),
    converted("num_processes", "parallel.ranks", processes),
    copied("num_machines", "parallel.nnodes"),
    copied("machine_rank", "parallel.node_rank"),
    copied("main_process_ip", "parallel.master_addr"),
    copied("main_process_port", "parallel.master_port"),
    converted("gpu_ids", "trainer.distributed.gpu_ids", gpu_ids),
    flagged("use_cpu", "trainer.target_device", "cpu"),
    copied("gradient_accumulation_steps", "trainer.gradient_accumulation"),
    ignored("main_training_function", "a script's own"),
    ignored("rdzv_backend", "ranks meet at parallel.master_addr"),
    ignored("rdzv_conf", "ranks meet at parallel.master_addr"),
    ignored("same_network", "ranks meet at parallel.master_addr"),
    ignored("downcast_bf16", "TPUs only"),
    ignored("debug", "reports name rank, step and phase by themselves"),
    ignored("enable_cpu_affinity", "parallel.threads"),
    ignored("max_restarts", "--max-restarts"),
    ignored("monitor_interval", "ranks are watched all the time"),
    ignored("commands", "a script's own"),
    ignored("command_file", "a script's own"),
    ignored("dynamo_*", own_kernels),
    only_off("tpu_*", "GPUs and CPUs only"),
    only_off("use_mps_device", "GPUs and CPUs only"),
    only_off("ipex_config", "GPUs and CPUs only"),
    only_off("mpirun_config", "start `lockstep train` under mpirun"),
    converted("fsdp_config", "parallel.shard", import_fsdp_config),
    converted("deepspeed_config", "parallel.shard", import_deepspeed_config),
    only_off("megatron_lm_config", one_axis),
    only_off("parallelism_config", "a model is cut by parallel.shard alone"),
    only_off("fp8_config", "one way of FP8, trainer.fp8"),
});

constexpr std::array deepspeed_rows = std::to_array<ImportRow>({
    converted("train_batch_size", "trainer.global_batch_size", unless_auto<global_batch>),
    converted("train_micro_batch_size_per_gpu", "trainer.batch_size", unless_auto<batch>),
    converted("gradient_accumulation_steps", "trainer.gradient_accumulation", unless_auto<accumulation>),
    converted("gradient_clipping", "trainer.max_grad_norm", unless_auto<clipping>),
    converted("bf16", "model.dtype", bf16),
    converted("bfloat16", "model.dtype", bf16),
    converted("fp16", "model.dtype", fp16),
    converted("optimizer", "trainer.optimizer", deepspeed_optimizer),
    converted("scheduler", "trainer.lr_schedule", deepspeed_scheduler),
    converted("zero_optimization", "parallel.shard", import_zero),
    ignored("zero_allow_untested_optimizer", "only read with zero_optimization"),
    ignored("zero_force_ds_cpu_optimizer", "only read with zero_optimization"),
    ignored("activation_checkpointing", "trainer.recompute"),
    ignored("steps_per_print", "trainer.log_interval"),
    ignored("wall_clock_breakdown", "metrics.jsonl has the times"),
    ignored("dump_state", "the run folder has config.yaml"),
    ignored("flops_profiler", "metrics.jsonl has the times"),
    ignored("prescale_gradients", "gradients are summed, then divided once"),
    ignored("gradient_predivide_factor", "gradients are summed, then divided once"),
    ignored("communication_data_type", "parallel.reduce_dtype"),
    ignored("tensorboard", no_tracker),
    ignored("wandb", no_tracker),
    ignored("csv_monitor", no_tracker),
    ignored("comms_logger", "`lockstep bench comm` measures"),
    ignored("aio", "only read with zero_optimization"),
    ignored("checkpoint", "the section checkpoint"),
    ignored("data_types", "gradients are added up in f32"),
    ignored("compile", own_kernels),
    only_off("amp", "model.dtype says what is computed in"),
    only_off("sparse_attention", "attention is dense"),
    only_off("pipeline", "a model is cut by parallel.shard alone"),
    only_off("tensor_parallel", "a model is cut by parallel.shard alone"),
    only_off("autotuning", "trainer.auto_find_batch_size finds a batch"),
    only_off("elasticity", "a run resumes on another number of GPUs by itself"),
    only_off("data_efficiency", "curricula are not built"),
    only_off("curriculum_learning", "curricula are not built"),
    only_off("compression_training", "compression is not built"),
    only_off("progressive_layer_drop", "layers are not dropped"),
    only_off("eigenvalue", "not built"),
    only_off("quantize_training", "not built"),
});

}  // namespace

const ImportProgram& accelerate() {
  static const ImportProgram program = {.name = "accelerate",
                                        .word = "accelerate",
                                        .signs = {"compute_environment", "distributed_type", "main_training_function", "num_processes",
                                                  "num_machines", "machine_rank", "rdzv_backend", "downcast_bf16", "same_network"},
                                        .rows = accelerate_rows,
                                        .defaults = {}};
  return program;
}

const ImportProgram& deepspeed() {
  static const ImportProgram program = {
      .name = "DeepSpeed",
      .word = "deepspeed",
      .signs = {"zero_optimization", "train_micro_batch_size_per_gpu", "gradient_clipping", "zero_allow_untested_optimizer",
                "steps_per_print", "wall_clock_breakdown", "activation_checkpointing", "zero_force_ds_cpu_optimizer"},
      .rows = deepspeed_rows,
      .defaults = {}};
  return program;
}

}  // namespace lockstep::config
