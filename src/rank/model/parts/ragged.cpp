// Sizes the records of a batch for cuDNN, so that few plans serve all batches, and calls the plug-in.
#include "rank/model/parts/ragged.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <bit>

#include "base/log.h"
#include "rank/kernels/plugin.h"
#include "rank/kernels/ragged_table.h"
#include "rank/model/parts/head_rows.h"

namespace lockstep::model {

namespace {

using enum kernels::RaggedOffset;

// A plan takes tens to hundreds of milliseconds to make, and batches differ in the number of their records and in the longest of them:
// both are rounded up to powers of two. Records that are not there have no tokens; blocks of threads beyond a record's end leave at once.
constexpr std::int64_t kFewestRecords = 8, kShortest = 128;
std::int64_t power_of_two(std::int64_t number, std::int64_t least) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max(number, least))));
}

using RowSizes = std::array<std::int64_t, kRaggedOffsets>;

RowSizes row_sizes(const HeadViews& heads) {
  const auto row = [](const at::Tensor& heads) { return heads.stride(2); };
  const auto head_dim = heads.q.size(3);
  RowSizes sizes{};
  sizes[q_offset] = row(heads.q);
  sizes[k_offset] = row(heads.k);
  sizes[v_offset] = row(heads.v);
  sizes[out_offset] = heads.q.size(1) * head_dim;
  sizes[kv_offset] = heads.k.size(1) * head_dim;
  sizes[log_sum_offset] = heads.q.size(1);
  return sizes;
}

constexpr std::int64_t kAligned = 4;  // numbers; cuDNN is promised tensors at multiples of 16 bytes

// [1 + kRaggedOffsets, records + kAligned]: lengths, then where records begin in tensors of each row size.
at::Tensor places_of(const Segments& segments, const RowSizes& sizes, at::Device device) {
  const auto given = static_cast<std::int64_t>(segments.starts.size()) - 1;
  const auto records = power_of_two(given, kFewestRecords);
  const at::Tensor host = at::empty({1 + kRaggedOffsets, records + kAligned}, at::kInt);
  auto* number = host.mutable_data_ptr<std::int32_t>();
  const auto start = [&](std::int64_t record) { return segments.starts[static_cast<std::size_t>(std::min(record, given))]; };
  for (std::int64_t i = 0; i < records + kAligned; ++i) *number++ = static_cast<std::int32_t>(start(i + 1) - start(i));
  for (const std::int64_t size : sizes)
    for (std::int64_t i = 0; i < records + kAligned; ++i) *number++ = static_cast<std::int32_t>(start(i) * size);
  return host.to(device, /*non_blocking=*/true);
}

kernels::RaggedCall call_of(const HeadViews& heads, Segments& segments) {
  const RowSizes sizes = row_sizes(heads);
  auto& made = segments.ragged;
  if (!made.places.defined() || !std::equal(sizes.begin(), sizes.end(), made.row_sizes.begin(), made.row_sizes.end()))
    made = {places_of(segments, sizes, heads.q.device()), {sizes.begin(), sizes.end()}};
  const auto records = made.places.size(1) - kAligned;
  return {.q = as_rows(heads.q),
          .k = as_rows(heads.k),
          .v = as_rows(heads.v),
          .lengths = made.places[0].narrow(0, 0, records),
          .offsets = made.places.narrow(0, 1, kRaggedOffsets).narrow(1, 0, records + 1),
          .longest = power_of_two(segments.longest, kShortest)};
}

}  // namespace

bool has_ragged_attention(const HeadViews& heads, Segments& segments) {
  const auto head_dim = heads.q.size(3);
  if (!heads.q.is_cuda() || heads.q.scalar_type() == at::kFloat || head_dim % 16 != 0 || head_dim > 128) return false;
  if (segments.without_plan != nullptr && *segments.without_plan) return false;
  const int capability = kernels::cuda_plugin().capability(heads.q.get_device());
  if (capability < 90 || capability >= 110) return false;  // before: no records of different lengths; RTX 50: not backward
  const RowSizes sizes = row_sizes(heads);
  if (segments.starts.back() * *std::max_element(sizes.begin(), sizes.end()) > INT32_MAX) return false;
  std::string why;
  if (kernels::cuda_plugin().ragged->plan(call_of(heads, segments), why)) return true;
  if (segments.without_plan != nullptr) *segments.without_plan = true;
  base::log_warning("cuDNN has no plan for attention over packed records ({}): flash attention does it from here on, which is slower.",
                    why);
  return false;
}

void ragged_forward(const HeadViews& heads, Segments& segments, AttentionSaved& saved) {
  kernels::RaggedCall call = call_of(heads, segments);
  call.out = at::empty(call.q.sizes(), call.q.options());
  call.log_sum = at::empty({call.q.size(0), call.q.size(1)}, call.q.options().dtype(at::kFloat));
  kernels::cuda_plugin().ragged->forward(call);
  saved = {AttentionKind::cudnn, as_batch(call.out, heads.q.size(0)), call.log_sum, {}, {}};
}

HeadGradients ragged_backward(const at::Tensor& dout, const HeadViews& heads, Segments& segments, const AttentionSaved& saved) {
  kernels::RaggedCall call = call_of(heads, segments);
  call.out = as_rows(saved.out).contiguous();
  call.log_sum = saved.log_sum;
  const auto like = [](const at::Tensor& rows) { return at::empty(rows.sizes(), rows.options()); };
  const kernels::RaggedGradients made{.dout = as_rows(dout).contiguous(),
                                      .dq = at::empty_strided(call.q.sizes(), call.q.strides(), call.q.options()),
                                      .dk = like(call.k),
                                      .dv = like(call.v)};
  kernels::cuda_plugin().ragged->backward(call, made);
  const auto batch = heads.q.size(0);
  return {as_batch(made.dq, batch), as_batch(made.dk, batch), as_batch(made.dv, batch)};
}

}  // namespace lockstep::model
