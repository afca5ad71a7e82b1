// The rules between settings.
#include "config/checks.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/text.h"
#include "config/table/option.h"
#include "config/table/value.h"
#include "layout/adapters/adapter_targets.h"
#include "layout/family.h"

namespace lockstep::config {
namespace {

// The divisors of `value` next to `wanted`: "4 or 6".
std::string nearest_divisors(std::int64_t value, std::int64_t wanted) {
  std::int64_t below = std::min(wanted, value), above = std::min(wanted, value);
  while (below > 1 && value % below != 0) --below;
  while (above < value && value % above != 0) ++above;
  return below == above ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

class Checker {
 public:
  explicit Checker(const Settings& settings) : settings_(settings), config_(settings.values) {}

  std::vector<std::string> run() {
    names();
    heads();
    family();
    quantization();
    if (broken_.empty()) adapters();
    lengths();
    steps();
    recompute();
    shards();
    data();
    devices();
    nodes();
    return std::move(broken_);
  }

 private:
  // Says where the first of these keys that a person set was set.
  template <typename... Args>
  void broken(std::initializer_list<std::string_view> keys, fmt::format_string<Args...> text, Args&&... args) {
    std::string where;
    for (const std::string_view key : keys) {
      const Source& source = settings_.source(key);
      if (source.origin == Origin::standard || source.origin == Origin::derived) continue;
      where = source.where + ": ";
      break;
    }
    broken_.push_back(where + fmt::format(text, std::forward<Args>(args)...));
  }

  void names() {
    if (config_.name.find('/') != std::string::npos || config_.name == "." || config_.name == "..") {
      broken({"name"}, "name = {} must be the name of one folder. Use --output for the folder that holds it.", config_.name);
    }
    for (const auto& [key, value] :
         {std::pair<std::string_view, std::string_view>("name", config_.name), {"model.name", config_.model.name}}) {
      const auto unseen = std::find_if(value.begin(), value.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
      if (unseen == value.end()) continue;
      broken({key}, "{} holds a character that cannot be seen (number {}), but run folders and terminals carry it. Use letters and digits.",
             key, static_cast<int>(*unseen));
    }
    if (config_.model.name.empty() || config_.model.name.find('/') != std::string::npos) {
      broken({"model.name"}, "model.name = \"{}\" must be a name without /, because run folders carry it. For example nano.",
             config_.model.name);
    }
    if (config_.output.empty()) broken({"output"}, "output is empty. Name a folder, for example runs.");
  }

  void heads() {
    const ModelConfig& m = config_.model;
    if (m.head_dim == 0 && m.hidden_size % m.num_heads != 0) {
      broken({"model.num_heads", "model.hidden_size"},
             "model.hidden_size = {} does not divide by model.num_heads = {}. Use hidden_size {}, or num_heads {}, or set model.head_dim.",
             m.hidden_size, m.num_heads, nearest_multiples(m.hidden_size, 2 * m.num_heads), nearest_divisors(m.hidden_size, m.num_heads));
      return;
    }
    if (m.kv_heads > 0 && m.num_heads % m.kv_heads != 0) {
      broken({"model.kv_heads", "model.num_heads"}, "model.num_heads = {} is not a multiple of model.kv_heads = {}. Use kv_heads {}.",
             m.num_heads, m.kv_heads, nearest_divisors(m.num_heads, m.kv_heads));
    }
    const std::int64_t head_dim = m.head_dim > 0 ? m.head_dim : m.hidden_size / m.num_heads;
    if (head_dim % 2 != 0) {
      broken({"model.head_dim", "model.hidden_size", "model.num_heads"},
             "model.head_dim = {} is odd; rotary positions turn pairs, so it must be even. {}", head_dim,
             m.head_dim > 0 ? fmt::format("Use {} or {}.", head_dim == 1 ? 2 : head_dim - 1, head_dim == 1 ? 4 : head_dim + 1)
                            : fmt::format("Use hidden_size {}, or set model.head_dim.", m.num_heads * (head_dim + 1)));
    }
  }

  void family() {
    const ModelConfig& m = config_.model;
    const auto key = layout::contradiction(m);
    if (!key) return;
    const bool follows = layout::norms_of(m) == layout::Norms::before;  // from the shape
    broken({"model.family", *key}, "model.family = {} does not go with {} = {}. {}", name_of(m.family), *key,
           write_value(option_of(*key), option_of(*key).get(config_)),
           follows ? "Leave model.family out: it follows from the shape." : fmt::format("Change {}.", *key));
  }

  void quantization() {
    const ModelConfig& m = config_.model;
    if (config_.lora.enabled && config_.lora.dora && config_.lora.dropout > 0) {
      broken({"lora.dropout", "lora.dora"},
             "lora.dropout = {} cannot go with lora.dora: magnitudes are taken of the whole product. Use one of them.",
             config_.lora.dropout);
    }
    if (m.load_in_4bit && m.load_in_8bit) {
      broken({"model.load_in_8bit", "model.load_in_4bit"},
             "model.load_in_4bit and model.load_in_8bit are both set, but a matrix is held in one way. Remove one of them.");
    } else if ((m.load_in_4bit || m.load_in_8bit) && !config_.lora.enabled) {
      const std::string_view key = m.load_in_4bit ? "model.load_in_4bit" : "model.load_in_8bit";
      broken({key}, "{} = true freezes the weights, and without adapters nothing is left to train. Set lora.enabled=true, or remove {}.",
             key, key);
    }
  }

  // A run file of LoRA leaves the folder, and with it the model's shape, to the command line: --model DIR.
  bool folder_to_come(std::string_view key) const {
    return config_.lora.enabled && config_.model.path.empty() && settings_.source(key).origin == Origin::standard;
  }

  // What a PEFT folder says was compared with the model and with its own weights.
  void adapters() {
    if (!config_.lora.enabled || !config_.lora.adapters.empty()) return;
    for (const layout::TargetMistake& mistake : layout::target_mistakes(config_.model, config_.lora)) {
      if (mistake.key == "lora.layers_to_transform" && folder_to_come("model.num_layers")) continue;
      broken({mistake.key}, "{}", mistake.text);
    }
  }

  void lengths() {
    const std::int64_t seq_len = config_.data.seq_len, longest = config_.model.max_seq_len;
    if (seq_len > longest && !folder_to_come("model.max_seq_len")) {
      broken({"data.seq_len", "model.max_seq_len"},
             "data.seq_len = {} is longer than model.max_seq_len = {}. Lower data.seq_len, or raise model.max_seq_len to {}.", seq_len,
             longest, seq_len);
    }
    if (const std::int64_t window = config_.model.sliding_window; window > 0 && seq_len > window) {
      broken({"data.seq_len", "model.sliding_window"},
             "data.seq_len = {} is longer than model.sliding_window = {}, the tokens this model's attention sees. Use data.seq_len {}.",
             seq_len, window, window);
    }
    if (seq_len == 1) broken({"data.seq_len"}, "data.seq_len = 1 leaves nothing to predict. Use at least 2.");
  }

  void steps() {
    const TrainerConfig& t = config_.trainer;
    if (t.batch_size > 0 && t.gradient_accumulation > 0 && t.global_batch_size > 0 &&
        t.global_batch_size % (t.batch_size * t.gradient_accumulation) != 0) {
      const std::int64_t share = t.batch_size * t.gradient_accumulation;
      broken(
          {"trainer.global_batch_size", "trainer.batch_size"},
          "trainer.global_batch_size = {} is not batch_size {} x gradient_accumulation {} x a number of ranks. Use {}, or leave one of the "
          "three out: it follows from the others.",
          t.global_batch_size, t.batch_size, t.gradient_accumulation, nearest_multiples(t.global_batch_size, share));
    }
    if (t.optimizer_states == StateDType::bf16 && config_.model.dtype != DType::bf16) {
      broken({"trainer.optimizer_states", "model.dtype"},
             "trainer.optimizer_states = bf16 trains bf16 weights without 32-bit masters, but model.dtype = {}. Use --dtype bf16, or "
             "optimizer_states f32.",
             name_of(config_.model.dtype));
    }
    if (t.fp8 && config_.model.dtype != DType::bf16) {
      broken({"trainer.fp8", "model.dtype"},
             "trainer.fp8 = true goes with model.dtype = bf16, not {}. Use --dtype bf16, or train without --fp8.",
             name_of(config_.model.dtype));
    }
    if (config_.monitor.stall_abort_seconds < config_.monitor.stall_seconds) {
      broken({"monitor.stall_abort_seconds", "monitor.stall_seconds"},
             "monitor.stall_abort_seconds = {} is less than monitor.stall_seconds = {}: the job would end before the stall is reported. "
             "Use at "
             "least {}.",
             config_.monitor.stall_abort_seconds, config_.monitor.stall_seconds, config_.monitor.stall_seconds);
    }
  }

  void shards() {
    const ParallelConfig& p = config_.parallel;
    if (p.replicate > 1 && p.shard == ShardKind::none) {
      broken({"parallel.replicate", "parallel.shard"},
             "parallel.replicate = {} makes groups of ranks that hold shards between them, but parallel.shard = none cuts nothing: every "
             "rank is a replica. Set parallel.shard=full, or remove parallel.replicate.",
             p.replicate);
    }
  }

  void recompute() {
    const TrainerConfig& t = config_.trainer;
    const bool whole_blocks = t.recompute == Recompute::blocks;
    if (t.offload_checkpoints && !whole_blocks && t.recompute != Recompute::automatic) {
      broken({"trainer.offload_checkpoints", "trainer.recompute"},
             "trainer.offload_checkpoints sends inputs of blocks that are recomputed to host memory, but with trainer.recompute = {} no "
             "block is. Use --recompute blocks, or train without --offload-checkpoints.",
             name_of(t.recompute));
    }
    if (t.recompute_every > 1 && !whole_blocks) {
      broken({"trainer.recompute_every", "trainer.recompute"},
             "trainer.recompute_every = {} says which blocks are recomputed, but trainer.recompute = {}. Use --recompute blocks, or remove "
             "recompute_every.",
             t.recompute_every, name_of(t.recompute));
    }
  }

  void data() {
    const DataConfig& d = config_.data;
    static constexpr std::array our_roles = {"user", "assistant", "system", "tool", "function_call"};
    for (const std::string& pair : d.roles) {
      const std::size_t equals = pair.find('=');
      const std::string ours = base::trim(pair.substr(0, equals));
      if (equals == pair.npos || std::find(our_roles.begin(), our_roles.end(), ours) == our_roles.end()) {
        broken({"data.roles"},
               "data.roles has {}, where each is ours=theirs, and ours is user, assistant, system, tool or function_call. "
               "For example user=customer.",
               pair);
      }
    }
    if (d.prompt_style == PromptStyle::alpaca && !d.system_prompt.empty()) {
      broken({"data.prompt_style", "data.system_prompt"},
             "data.prompt_style = alpaca writes Alpaca's own words, which have no place for data.system_prompt. Remove one of them.");
    }
    const bool from_file = d.kind == DataKind::bin || d.kind == DataKind::text || d.kind == DataKind::records;
    if (from_file && d.path.empty()) {
      broken({"data.kind"}, "data.kind = {} needs a file. Give --data FILE, or set data.path.", name_of(d.kind));
    }
    if ((d.kind == DataKind::stories || d.kind == DataKind::random) && !d.path.empty()) {
      broken({"data.path", "data.kind"},
             "data.kind = {} is made, not read, but data.path = {} is set. Set data.kind=auto to read the file, or remove data.path.",
             name_of(d.kind), d.path);
    }
    if (d.token_type == TokenType::u16 && config_.model.vocab_size > 65536) {
      broken({"data.token_type", "model.vocab_size"},
             "data.token_type = u16 holds tokens below 65536, but model.vocab_size = {}. Use token_type u32, or vocab_size 65536.",
             config_.model.vocab_size);
    }
  }

  void devices() {
    const DistributedConfig& d = config_.trainer.distributed;
    const std::set<std::int64_t> different(d.gpu_ids.begin(), d.gpu_ids.end());
    if (different.size() != d.gpu_ids.size()) {
      broken({"trainer.distributed.gpu_ids"}, "trainer.distributed.gpu_ids = [{}] names a GPU twice. List each once.",
             fmt::join(d.gpu_ids, ", "));
    }
    const auto listed = static_cast<std::int64_t>(d.gpu_ids.size());
    if (listed > 0 && config_.launch.num_gpus > 0 && config_.launch.num_gpus != listed) {
      broken({"launch.num_gpus"}, "launch.num_gpus = {}, but trainer.distributed.gpu_ids names {} ([{}]). Give one of the two.",
             config_.launch.num_gpus, listed, fmt::join(d.gpu_ids, ", "));
    }
    if (config_.trainer.target_device != DeviceKind::cpu) return;
    if (listed > 0) {
      broken({"trainer.target_device", "trainer.distributed.gpu_ids"},
             "trainer.target_device = cpu, but trainer.distributed.gpu_ids = [{}] names GPUs. Remove one of them.",
             fmt::join(d.gpu_ids, ", "));
    }
    if (config_.trainer.fp8) {
      broken({"trainer.fp8", "trainer.target_device"},
             "trainer.fp8 = true needs an H100, an RTX 40 or a later GPU, but trainer.target_device = cpu. Train without --fp8.");
    }
    if (d.backend == Backend::nccl) {
      broken({"trainer.distributed.backend", "trainer.target_device"},
             "trainer.distributed.backend = nccl needs GPUs, but trainer.target_device = cpu. Use backend gloo, or target_device cuda.");
    }
  }

  void nodes() {
    const ParallelConfig& p = config_.parallel;
    if (p.node_rank >= p.nnodes) {
      broken({"parallel.node_rank", "parallel.nnodes"},
             "parallel.node_rank = {} must be below parallel.nnodes = {}: machines count from 0.", p.node_rank, p.nnodes);
    }
    if (p.nnodes > 1 && (p.master_addr == "127.0.0.1" || p.master_addr == "localhost")) {
      broken({"parallel.nnodes"},
             "parallel.nnodes = {}, but parallel.master_addr = {} is this machine alone. Set --master-addr to the address of machine 0.",
             p.nnodes, p.master_addr);
    }
    const bool alone = !config_.trainer.distributed.enabled || config_.trainer.distributed.backend == Backend::single;
    if (alone && (p.ranks > 1 || p.nnodes > 1)) {
      broken({"parallel.ranks", "parallel.nnodes"}, "{} ranks cannot train with {}. Remove it, or use one rank.",
             std::max<std::int64_t>(p.ranks, 1) * p.nnodes,
             config_.trainer.distributed.enabled ? "trainer.distributed.backend = single" : "trainer.distributed.enabled = false");
    }
  }

  const Settings& settings_;
  const RunConfig& config_;
  std::vector<std::string> broken_;
};

}  // namespace

std::string nearest_multiples(std::int64_t value, std::int64_t step) {
  const std::int64_t below = value / step * step;
  return below > 0 ? fmt::format("{} or {}", below, below + step) : fmt::format("{}", step);
}

std::vector<std::string> broken_rules(const Settings& settings) { return Checker(settings).run(); }

}  // namespace lockstep::config
