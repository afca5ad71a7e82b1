// Attention over packed records against the definition, record by record: outputs and gradients, with every kernel that this device has.
#include "rank/model/parts/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "rank/kernels/plugin.h"
#include "support/reference/decoder_fixture.h"

namespace lockstep::model {
namespace {

struct Shape {
  std::int64_t heads, kv_heads, head_dim, batch, time;
  std::vector<std::int64_t> starts;  // over all rows, the last is their number
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> shapes = {
      {4, 2, 16, 2, 16, {0, 5, 12, 16, 17, 32}},
      {4, 4, 64, 2, 256, {0, 1, 200, 256, 300, 512}},  // longer than a head is wide, longer than a tile of any kernel
      {8, 2, 128, 1, 512, {0, 300, 512}},
      {8, 2, 128, 1, 512, {0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 512}},  // more of them in rows of the same size
      {2, 1, 40, 1, 64, {0, 33, 64}},                                     // a head size that not all kernels take
      {4, 2, 18, 2, 16, {0, 5, 12, 16, 17, 32}},                          // and one that none does
      {2, 1, 100, 1, 64, {0, 33, 64}},
      {4, 2, 18, 2, 64, {0, 64, 128}},  // each row of tokens is a record: see segments_of
  };
  return shapes;
}

bool rows_are_records(const Shape& shape) {
  return static_cast<std::int64_t>(shape.starts.size()) == shape.batch + 1 && shape.starts[1] == shape.time;
}

Segments segments_of(const Shape& shape, at::Device device) {
  if (rows_are_records(shape)) return {};  // as batches that are not packed say it
  Segments segments{.starts = shape.starts};
  for (std::size_t i = 0; i + 1 < shape.starts.size(); ++i)
    segments.longest = std::max(segments.longest, shape.starts[i + 1] - shape.starts[i]);
  segments.on_device = at::tensor(at::IntArrayRef(shape.starts), at::kInt).to(device);
  return segments;
}

// [rows, heads, head_dim] in f64
struct Reference {
  at::Tensor out, dq, dk, dv;
};

Reference by_definition(const Shape& shape, const HeadViews& heads, const at::Tensor& dout) {
  const auto rows = [&](const at::Tensor& view) {
    return view.to(at::kDouble)
        .transpose(1, 2)
        .reshape({shape.batch * shape.time, view.size(1), shape.head_dim})
        .transpose(0, 1);  // [heads, rows, d]
  };
  const auto groups = shape.heads / shape.kv_heads;
  const at::Tensor q = rows(heads.q), k = rows(heads.k).repeat_interleave(groups, 0), v = rows(heads.v).repeat_interleave(groups, 0);
  const at::Tensor d = dout.to(at::kDouble).view({-1, shape.heads, shape.head_dim}).transpose(0, 1);
  const auto scale = 1 / std::sqrt(double(shape.head_dim));
  const at::Tensor out = at::empty(q.sizes(), q.options()), dq = at::empty(q.sizes(), q.options()), dk = at::empty(q.sizes(), q.options()),
                   dv = at::empty(q.sizes(), q.options());
  for (std::size_t i = 0; i + 1 < shape.starts.size(); ++i) {
    const auto part = [&](const at::Tensor& all) { return all.narrow(1, shape.starts[i], shape.starts[i + 1] - shape.starts[i]); };
    const auto time = part(q).size(1);
    const at::Tensor later = at::ones({time, time}, q.options()).triu(1).to(at::kBool);
    const at::Tensor scores = (at::matmul(part(q), part(k).transpose(1, 2)) * scale).masked_fill(later, -INFINITY);
    const at::Tensor p = at::softmax(scores, -1);
    part(out).copy_(at::matmul(p, part(v)));
    part(dv).copy_(at::matmul(p.transpose(1, 2), part(d)));
    const at::Tensor dp = at::matmul(part(d), part(v).transpose(1, 2));
    const at::Tensor ds = p * (dp - (dp * p).sum(-1, /*keepdim=*/true)) * scale;
    part(dq).copy_(at::matmul(ds, part(k)));
    part(dk).copy_(at::matmul(ds.transpose(1, 2), part(q)));
  }
  const auto summed = [&](const at::Tensor& all) { return all.view({shape.kv_heads, groups, all.size(1), all.size(2)}).sum(1); };
  return {out, dq, summed(dk), summed(dv)};
}

void expect_close(const at::Tensor& got, const at::Tensor& wanted, double tolerance, const std::string& what) {
  const double difference = (got - wanted).norm().item<double>() / wanted.norm().item<double>();
  EXPECT_LT(difference, tolerance) << what;
}

AttentionKind wanted_kind(const Shape& shape, at::ScalarType type, bool deterministic, at::Device device) {
  if (!device.is_cuda()) return AttentionKind::cpu_flash;
  if (type == at::kFloat) return AttentionKind::efficient;
  const int capability = kernels::cuda_plugin().capability(device.index());
  const bool packed = !rows_are_records(shape);
  const bool cudnn = !deterministic && (!packed || shape.head_dim % 16 == 0) && capability >= 90 && capability < 110;
  return cudnn ? AttentionKind::cudnn : AttentionKind::flash;
}

TEST(PackedAttention, EqualsTheDefinitionForEachRecord) {
  const auto device = test::device();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    if (type == at::kHalf && device.is_cpu()) continue;  // the same loops as bf16's
    for (const bool deterministic : {false, true}) {
      if (deterministic && device.is_cpu()) continue;  // always is
      std::optional<test::Deterministic> setting;
      if (deterministic) setting.emplace();
      for (const Shape& shape : shapes()) {
        const auto rows = shape.batch * shape.time, width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
        const std::string what = fmt::format("{} heads of {}, {} records, {}{}", shape.heads, shape.head_dim, shape.starts.size() - 1,
                                             c10::toString(type), deterministic ? ", deterministic" : "");
        Dims dims{config::ModelConfig()};
        dims.heads = shape.heads;
        dims.kv_heads = shape.kv_heads;
        dims.head_dim = shape.head_dim;
        auto random = test::generator(1);
        const at::Tensor qkv = at::randn({rows, width}, random).to(device, type);
        const at::Tensor dout = at::randn({rows, shape.heads * shape.head_dim}, random).to(device, type);
        const HeadViews heads = head_views(qkv, qkv, dims, shape.time);
        Segments segments = segments_of(shape, device);
        AttentionSaved saved;
        const at::Tensor out = attention_forward(heads, segments, saved);
        EXPECT_EQ(saved.kind, wanted_kind(shape, type, deterministic, device)) << what;
        const HeadGradients gradients = attention_backward(dout, heads, segments, saved);

        const Reference wanted = by_definition(shape, heads, dout);
        const double tolerance = type == at::kFloat ? 1e-5 : type == at::kHalf ? 3e-3 : 2e-2;
        const auto by_heads = [&](const at::Tensor& view) {  // [batch, heads, time, head_dim] -> [heads, rows, head_dim]
          return view.to(at::kDouble).transpose(0, 1).reshape({view.size(1), rows, shape.head_dim});
        };
        const auto by_kv_heads = [&](const at::Tensor& view) {
          return by_heads(view).view({shape.kv_heads, -1, rows, shape.head_dim}).sum(1);  // some kernels leave one a query head
        };
        expect_close(out.to(at::kDouble).view({rows, shape.heads, shape.head_dim}).transpose(0, 1), wanted.out, tolerance, what + ": out");
        expect_close(by_heads(gradients.dq), wanted.dq, tolerance, what + ": dq");
        expect_close(by_kv_heads(gradients.dk), wanted.dk, tolerance, what + ": dk");
        expect_close(by_kv_heads(gradients.dv), wanted.dv, tolerance, what + ": dv");
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::model
