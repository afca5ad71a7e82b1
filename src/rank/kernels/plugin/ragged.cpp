// In the CUDA plug-in: cuDNN's attention over records of different lengths, with plans that are kept.
// ATen's operator for it (LibTorch 2.11) makes a plan in every call, tens of milliseconds, and takes head_dim for the longest record in
// backward.
#include <ATen/cudnn/Handle.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <cmath>
#include <compare>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>
#include <unordered_map>

#include "base/mutex.h"
#include "rank/kernels/plugin/session.h"
#include "rank/kernels/ragged_table.h"

namespace lockstep::kernels::cuda {

namespace {

namespace fe = cudnn_frontend;
using Attributes = fe::graph::Tensor_attributes;
using Node = std::shared_ptr<Attributes>;

enum Uid : std::int64_t { q_uid = 1, k_uid, v_uid, out_uid, log_sum_uid, dout_uid, dq_uid, dk_uid, dv_uid, lengths_uid, offsets_uid };

// What decides a plan.
struct Key {
  int device, type;
  std::int64_t records, longest, rows, heads, kv_heads, head_dim, q_row, k_row, v_row;

  explicit Key(const RaggedCall& call)
      : device(call.q.get_device()),
        type(int(call.q.scalar_type())),
        records(call.lengths.numel()),
        longest(call.longest),
        rows(call.q.size(0)),
        heads(call.q.size(1)),
        kv_heads(call.k.size(1)),
        head_dim(call.q.size(2)),
        q_row(call.q.stride(0)),
        k_row(call.k.stride(0)),
        v_row(call.v.stride(0)) {}
  auto operator<=>(const Key&) const = default;
};

void check(fe::error_t status, const char* what) {
  if (status.is_bad()) throw std::runtime_error(std::string("cuDNN: ") + what + ": " + status.get_message());
}

using Pointers = std::unordered_map<std::int64_t, void*>;

// A plan in the making, then made. Tensors are described as [records, heads, longest, head_dim] with a place for each record.
class Plan {
 public:
  explicit Plan(const Key& key) : key_(key) {
    graph_.set_io_data_type(key.type == int(at::kBFloat16) ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    lengths_ = graph_.tensor(numbers("lengths", key.records, lengths_uid));
  }

  void make_forward() {
    auto options = fe::graph::SDPA_attributes().set_name("ragged_attention").set_generate_stats(true);
    const auto [out, log_sum] = graph_.sdpa(q(), k(), v(), settings(options));
    as_output(out, out_uid, key_.heads, out_row(), out_offset);
    log_sum->set_output(true).set_uid(log_sum_uid).set_data_type(fe::DataType_t::FLOAT);
    log_sum->set_dim(log_sum_dim()).set_stride(log_sum_stride()).set_ragged_offset(offset(log_sum_offset));
    build();
  }

  void make_backward() {
    auto options = fe::graph::SDPA_backward_attributes().set_name("ragged_attention_backward");
    // Without these its sums would be sized for records that are all as long as the longest.
    options.set_max_total_seq_len_q(key_.rows).set_max_total_seq_len_kv(key_.rows);
    const Node log_sum = graph_.tensor(Attributes()
                                           .set_name("log_sum")
                                           .set_uid(log_sum_uid)
                                           .set_dim(log_sum_dim())
                                           .set_stride(log_sum_stride())
                                           .set_data_type(fe::DataType_t::FLOAT)
                                           .set_ragged_offset(offset(log_sum_offset)));
    const Node out = heads("out", out_uid, key_.heads, out_row(), out_offset);
    const Node dout = heads("dout", dout_uid, key_.heads, out_row(), out_offset);
    const auto [dq, dk, dv] = graph_.sdpa_backward(q(), k(), v(), out, dout, log_sum, settings(options));
    // cuDNN 9.19 sums dq at the places it has for q, whatever places are given for dq.
    as_output(dq, dq_uid, key_.heads, key_.q_row, q_offset);
    as_output(dk, dk_uid, key_.kv_heads, kv_row(), kv_offset);
    as_output(dv, dv_uid, key_.kv_heads, kv_row(), kv_offset);
    build();
  }

  // pointers: of the tensors but the lengths and places, which are added.
  void run(const RaggedCall& call, Pointers pointers) const {
    pointers[lengths_uid] = call.lengths.mutable_data_ptr();
    for (int i = 0; i < kRaggedOffsets; ++i)
      if (offsets_[i]) pointers[std::int64_t(offsets_uid) + i] = call.offsets.mutable_data_ptr<std::int32_t>() + i * call.offsets.stride(0);
    const auto workspace = c10::cuda::CUDACachingAllocator::get()->allocate(static_cast<std::size_t>(workspace_bytes_));
    check(graph_.execute(at::native::getCudnnHandle(), pointers, workspace.get()), "attention over packed records");
  }

 private:
  std::int64_t out_row() const { return key_.heads * key_.head_dim; }
  std::int64_t kv_row() const { return key_.kv_heads * key_.head_dim; }
  std::vector<std::int64_t> dim(std::int64_t heads) const { return {key_.records, heads, key_.longest, key_.head_dim}; }
  std::vector<std::int64_t> stride(std::int64_t row) const { return {key_.longest * row, key_.head_dim, row, 1}; }
  std::vector<std::int64_t> log_sum_dim() const { return {key_.records, key_.heads, key_.longest, 1}; }
  std::vector<std::int64_t> log_sum_stride() const { return {key_.longest * key_.heads, 1, key_.heads, 1}; }

  static Attributes numbers(const std::string& name, std::int64_t count, std::int64_t uid) {
    return Attributes().set_name(name).set_uid(uid).set_dim({count, 1, 1, 1}).set_stride({1, 1, 1, 1}).set_data_type(fe::DataType_t::INT32);
  }
  Node offset(RaggedOffset which) {
    Node& node = offsets_[which];
    if (!node) node = graph_.tensor(numbers("offset_" + std::to_string(which), key_.records + 1, std::int64_t(offsets_uid) + which));
    return node;
  }
  Node heads(const char* name, Uid uid, std::int64_t heads, std::int64_t row, RaggedOffset where) {
    return graph_.tensor(
        Attributes().set_name(name).set_uid(uid).set_dim(dim(heads)).set_stride(stride(row)).set_ragged_offset(offset(where)));
  }
  void as_output(const Node& node, Uid uid, std::int64_t heads, std::int64_t row, RaggedOffset where) {
    node->set_output(true).set_uid(uid).set_dim(dim(heads)).set_stride(stride(row)).set_ragged_offset(offset(where));
  }
  Node q() { return heads("q", q_uid, key_.heads, key_.q_row, q_offset); }
  Node k() { return heads("k", k_uid, key_.kv_heads, key_.k_row, k_offset); }
  Node v() { return heads("v", v_uid, key_.kv_heads, key_.v_row, v_offset); }

  template <typename Options>
  Options& settings(Options& options) const {
    return options.set_attn_scale(1 / std::sqrt(static_cast<float>(key_.head_dim)))
        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0)
        .set_padding_mask(true)
        .set_seq_len_q(lengths_)
        .set_seq_len_kv(lengths_);
  }
  void build() {
    check(graph_.validate(), "its frontend refuses");
    check(graph_.build_operation_graph(at::native::getCudnnHandle()), "no operations");
    check(graph_.create_execution_plans({fe::HeurMode_t::A}), "no plan");
    check(graph_.check_support(), "not supported");
    check(graph_.build_plans(), "no plan can be built");
    check(graph_.get_workspace_size(workspace_bytes_), "no workspace size");
  }

  Key key_;
  fe::graph::Graph graph_;
  Node lengths_, offsets_[kRaggedOffsets];
  std::int64_t workspace_bytes_ = 0;
};

struct Plans {
  Plan forward, backward;
  explicit Plans(const Key& key) : forward(key), backward(key) {
    forward.make_forward();
    backward.make_backward();
  }
};

}  // namespace

class RaggedPlans {
 public:
  const Plans& of(const RaggedCall& call) {
    const base::Lock lock(mutex_);
    const Key key(call);
    auto& plans = plans_[{std::this_thread::get_id(), key}];  // cuDNN does not promise that threads can share one
    if (!plans) plans = std::make_unique<Plans>(key);
    return *plans;
  }

 private:
  base::Mutex mutex_;
  std::map<std::pair<std::thread::id, Key>, std::unique_ptr<Plans>> plans_ LOCKSTEP_GUARDED_BY(mutex_);
};

std::shared_ptr<RaggedPlans> make_ragged_plans() { return std::make_shared<RaggedPlans>(); }

namespace {

const Plans& plans_for(const RaggedCall& call) { return session().ragged->of(call); }

Pointers pointers_of(const RaggedCall& call) {
  return {{q_uid, call.q.mutable_data_ptr()},
          {k_uid, call.k.mutable_data_ptr()},
          {v_uid, call.v.mutable_data_ptr()},
          {out_uid, call.out.mutable_data_ptr()},
          {log_sum_uid, call.log_sum.mutable_data_ptr()}};
}

bool plan(const RaggedCall& call, std::string& why) {
  const c10::cuda::CUDAGuard guard(call.q.device());
  try {
    plans_for(call);
    return true;
  } catch (const std::exception& error) {
    why = error.what();
    return false;
  }
}

void forward(const RaggedCall& call) {
  const c10::cuda::CUDAGuard guard(call.q.device());
  plans_for(call).forward.run(call, pointers_of(call));
}

void backward(const RaggedCall& call, const RaggedGradients& gradients) {
  const c10::cuda::CUDAGuard guard(call.q.device());
  Pointers pointers = pointers_of(call);
  pointers[dout_uid] = gradients.dout.mutable_data_ptr();
  pointers[dq_uid] = gradients.dq.mutable_data_ptr();
  pointers[dk_uid] = gradients.dk.mutable_data_ptr();
  pointers[dv_uid] = gradients.dv.mutable_data_ptr();
  plans_for(call).backward.run(call, std::move(pointers));
}

}  // namespace

const RaggedTable& ragged_table() {
  static constexpr RaggedTable table{.plan = plan, .forward = forward, .backward = backward};
  return table;
}

}  // namespace lockstep::kernels::cuda
