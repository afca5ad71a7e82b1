// Every kernel and matrix product of a model at its own shapes, with the least traffic or work that each must do.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "config/config.h"
#include "rank/bench/bench.h"
#include "rank/kernels/fp8.h"
#include "rank/kernels/kernels.h"
#include "rank/kernels/session.h"
#include "rank/model/parts/attention.h"
#include "rank/model/layout.h"
#include "rank/model/parts/rotary.h"
#include "rank/model/projection/linear.h"
#include "rank/model/model.h"
#include "rank/model/weights/quantized.h"
#include "rank/train/memory/device_memory.h"

namespace lockstep::bench {
namespace {

std::string shape_of(at::IntArrayRef sizes) { return fmt::format("{}", fmt::join(sizes, " x ")); }

class KernelBench {
 public:
  explicit KernelBench(const KernelsRequest& request)
      : device_(request.device),
        dims_(request.model),
        options_(at::TensorOptions().device(request.device).dtype(model::scalar_type(request.model.dtype))),
        time_(request.seq_len),
        rows_(request.batch_size * request.seq_len) {}

  std::vector<KernelResult> run() {
    norms();
    rope();
    swiglu();
    if (dims_.qkv_bias) bias();
    embedding();
    loss();
    optimizer();
    dequantize();
    attention("attention", time_);
    attention("attention packed", std::max<std::int64_t>(1, time_ / 4));
    matmul("qkv", rows_, dims_.hidden, dims_.qkv_width());
    matmul("out", rows_, dims_.q_width(), dims_.hidden);
    matmul("gate_up", rows_, dims_.hidden, 2 * dims_.intermediate);
    matmul("down", rows_, dims_.intermediate, dims_.hidden);
    matmul("head", loss_rows(), dims_.hidden, dims_.vocab);
    swiglu_matmuls();
    const bool in_sixteens = (rows_ | dims_.hidden | dims_.qkv_width() | dims_.q_width() | dims_.intermediate) % 16 == 0;
    if (options_.dtype() == at::kBFloat16 && kernels::has_fp8(device_) && in_sixteens) {
      fp8_copies();
      fp8_matmul("qkv", dims_.hidden, dims_.qkv_width());
      fp8_matmul("out", dims_.q_width(), dims_.hidden);
      fp8_matmul("gate_up", dims_.hidden, 2 * dims_.intermediate);
      fp8_matmul("down", dims_.intermediate, dims_.hidden);
    }
    return std::move(results_);
  }

 private:
  at::Tensor random(at::IntArrayRef sizes) const { return at::randn(sizes, options_); }
  at::Tensor zeros(at::IntArrayRef sizes) const { return at::zeros(sizes, options_); }
  at::TensorOptions f32() const { return options_.dtype(at::kFloat); }
  double bytes_of(at::TensorList tensors) const {
    double bytes = 0;
    for (const at::Tensor& tensor : tensors) bytes += static_cast<double>(tensor.nbytes());
    return bytes;
  }
  // The logits of one chunk: what the head takes at once.
  std::int64_t loss_rows() const {
    const std::int64_t bytes = device_.is_cuda() ? std::int64_t(512) << 20 : std::int64_t(8) << 20;
    return std::clamp<std::int64_t>(bytes / (dims_.vocab * static_cast<std::int64_t>(options_.dtype().itemsize())),
                                    std::min<std::int64_t>(128, rows_), rows_);
  }

  void moves(const std::string& name, const at::Tensor& largest, double bytes, const std::function<void()>& work) {
    results_.push_back({.name = name, .shape = shape_of(largest.sizes()), .seconds = time_short(device_, work), .bytes = bytes});
  }
  void computes(const std::string& name, const std::string& shape, double flops, const std::function<void()>& work) {
    results_.push_back({.name = name, .shape = shape, .seconds = time_short(device_, work), .flops = flops});
  }

  void norms() {
    const auto residual = random({rows_, dims_.hidden}), delta = random({rows_, dims_.hidden});
    const auto x = zeros({rows_, dims_.hidden}), out = zeros({rows_, dims_.hidden});
    const auto weight = at::ones({dims_.hidden}, options_), rstd = at::ones({rows_}, f32());
    moves("rms_norm forward", x, bytes_of({residual, delta, x, out, rstd}),
          [&] { kernels::rms_norm_forward(residual, delta, weight, dims_.norm_eps, x, out, rstd); });
    const auto dx = zeros({rows_, dims_.hidden}), dweight = zeros({dims_.hidden});
    moves("rms_norm backward", x, bytes_of({delta, x, dx, dx, rstd}),
          [&] { kernels::rms_norm_backward(delta, x, weight, rstd, dx, kernels::Into::add, dweight); });
  }

  void rope() {
    const kernels::HeadLayout layout{time_, dims_.heads, dims_.kv_heads, dims_.head_dim};
    const auto rotary = kernels::rotary_table(time_, model::inverse_frequencies(dims_.head_dim, dims_.rope_theta), device_);
    const auto qkv = random({rows_, dims_.qkv_width()});
    const double rotated =
        bytes_of({qkv}) * static_cast<double>(dims_.q_width() + dims_.kv_width()) / static_cast<double>(dims_.qkv_width());
    moves("rope forward", qkv, 2 * rotated, [&] { kernels::rope_forward(qkv, qkv, layout, rotary, {}); });
    const std::int64_t batch = rows_ / time_;
    // As attention leaves them: stored [batch, time, heads, head_dim].
    const auto dq = random({batch, time_, dims_.heads, dims_.head_dim}).transpose(1, 2);
    const auto dk = random({batch, time_, dims_.kv_heads, dims_.head_dim}).transpose(1, 2);
    const auto dv = random({batch, time_, dims_.kv_heads, dims_.head_dim}).transpose(1, 2);
    moves("rope backward", qkv, 2 * bytes_of({qkv}), [&] { kernels::rope_backward(dq, dk, dv, qkv, layout, rotary, {}, {}); });
  }

  void swiglu() {
    const auto gate_up = random({rows_, 2 * dims_.intermediate}), dgate_up = zeros({rows_, 2 * dims_.intermediate});
    const auto out = random({rows_, dims_.intermediate});
    moves("swiglu forward", gate_up, bytes_of({gate_up, out}), [&] { kernels::swiglu_forward(gate_up, out); });
    moves("swiglu backward", gate_up, bytes_of({gate_up, out, dgate_up}), [&] { kernels::swiglu_backward(gate_up, out, dgate_up, {}); });
  }

  // SwiGLU as part of the matmul before it and of the input gradient behind it; operations are those of the matmul alone.
  void swiglu_matmuls() {
    const auto gate_up = random({rows_, 2 * dims_.intermediate});
    if (!kernels::fuses_swiglu(gate_up, dims_.hidden, 0)) return;
    const auto out = random({rows_, dims_.intermediate}), x = random({rows_, dims_.hidden});
    const auto weight = random({2 * dims_.intermediate, dims_.hidden}), down = random({dims_.hidden, dims_.intermediate});
    const double flops = 2.0 * static_cast<double>(rows_) * static_cast<double>(dims_.hidden) * static_cast<double>(dims_.intermediate);
    computes("gate_up + swiglu forward", shape_of({rows_, dims_.hidden, 2 * dims_.intermediate}), 2 * flops,
             [&] { kernels::gate_up_swiglu(gate_up, out, x, weight, {}); });
    for (const auto& [what, again] : {std::pair{"", at::Tensor()}, {", again", out}})
      computes(fmt::format("down + swiglu backward{}", what), shape_of({rows_, dims_.intermediate, dims_.hidden}), flops,
               [&] { kernels::down_backward_swiglu(gate_up, again, x, down, {}); });
  }

  void bias() {
    const auto dout = random({rows_, dims_.qkv_width()}), dbias = zeros({dims_.qkv_width()});
    moves("bias backward", dout, bytes_of({dout}), [&] { kernels::bias_backward(dout, dbias); });
  }

  void embedding() {
    const at::Tensor host = at::randint(dims_.vocab, {rows_}, at::kLong);
    const std::int64_t* first = host.const_data_ptr<std::int64_t>();
    const double distinct = static_cast<double>(std::set<std::int64_t>(first, first + rows_).size());
    const auto tokens = host.to(device_);
    const auto weight = random({dims_.vocab, dims_.hidden}), out = random({rows_, dims_.hidden});
    const double touched = bytes_of({weight}) * distinct / static_cast<double>(dims_.vocab);
    moves("embedding forward", out, bytes_of({tokens, out}) + touched, [&] { kernels::embedding_forward(tokens, weight, out); });
    moves("embedding backward", out, bytes_of({tokens, out}) + 2 * touched, [&] { kernels::embedding_backward(tokens, out, weight); });
  }

  void loss() {
    const auto logits = random({loss_rows(), dims_.vocab});
    const auto targets = at::randint(dims_.vocab, {loss_rows()}, at::kLong).to(device_);
    const auto losses = at::zeros({loss_rows()}, f32()), scale = at::ones({}, f32());
    moves("cross_entropy", logits, 2 * bytes_of({logits}), [&] { kernels::cross_entropy(logits, targets, losses, scale); });
  }

  void optimizer() {
    // As many numbers as a block has, so that a laptop can hold them; larger than caches on a GPU.
    const std::int64_t count = device_.is_cuda() ? std::int64_t(1) << 27 : std::int64_t(1) << 22;
    // Numbers as training has them, not zeros: a GPU's clock depends on how many bits flip.
    const auto gradient = random({count}), weights = random({count});
    const auto master = weights.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true), exp_avg = at::randn({count}, f32());
    const auto exp_avg_sq = at::randn({count}, f32()).abs_();
    const bool own_weights = options_.dtype() != at::kFloat;
    const kernels::UpdateSettings adamw{.rate = 1e-5, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1};
    kernels::Control numbers{.factor = 1, .updates = 100, .loss_scale = 1};
    const auto control = at::from_blob(&numbers, {kernels::kControlNumbers}, at::kDouble).clone().to(device_);
    double bytes = bytes_of({gradient, gradient, master, master, exp_avg, exp_avg, exp_avg_sq, exp_avg_sq});
    if (own_weights) bytes += bytes_of({weights});
    moves("adamw", master, bytes,
          [&] { kernels::update({gradient, master, own_weights ? weights : master, exp_avg, exp_avg_sq}, control, adamw); });
    if (options_.dtype() == at::kBFloat16) {
      const auto first = random({count}), second = random({count}).abs_();
      moves("adamw bf16 states", weights, bytes_of({gradient, gradient, weights, weights, first, first, second, second}),
            [&] { kernels::update({gradient, weights, weights, first, second}, control, adamw); });
    }
    const auto codes = at::randint(256, {count}, options_.dtype(at::kByte)),
               other_codes = at::randint(256, {count}, options_.dtype(at::kByte));
    const auto scale = at::ones({count / kernels::kQuantBlock}, f32()), other_scale = at::ones({count / kernels::kQuantBlock}, f32());
    const kernels::QuantState first{codes, scale, kernels::dynamic_map(true, device_)};
    const kernels::QuantState second{other_codes, other_scale, kernels::dynamic_map(false, device_)};
    moves("adamw 8-bit moments", master,
          bytes_of({gradient, gradient, master, master, codes, codes, other_codes, other_codes}) + (own_weights ? bytes_of({weights}) : 0),
          [&] { kernels::adamw_8bit({gradient, master, own_weights ? weights : master, {}, {}}, first, second, control, adamw); });
    moves("sum_of_squares", gradient, bytes_of({gradient}), [&] { kernels::sum_of_squares({&gradient, 1}); });
  }

  // The largest matrix of a block, as a step with quantized frozen weights makes it whole.
  void dequantize() {
    const model::LeafSpec leaf{.name = "gate_up",
                               .pieces = {{"gate", {dims_.intermediate, dims_.hidden}}, {"up", {dims_.intermediate, dims_.hidden}}}};
    for (const auto quantization : {model::Quantization::nf4, model::Quantization::int8}) {
      model::QuantizedMatrix matrix(
          leaf, {.device = device_, .weight_dtype = options_.dtype().toScalarType(), .trainable = false, .quantization = quantization});
      for (std::size_t piece = 0; piece < 2; ++piece) matrix.store(piece, random(leaf.pieces[piece].shape));
      at::Tensor buffer;
      matrix.dense(buffer);
      const bool nf4 = quantization == model::Quantization::nf4;
      moves(nf4 ? "dequantize nf4" : "dequantize int8", buffer, bytes_of({buffer}) + static_cast<double>(matrix.bytes()),
            [&] { matrix.dense(buffer); });
    }
  }

  // Records of `length` tokens (the last of a row may be shorter); one a row is not packed at all.
  model::Segments segments_of(std::int64_t length) const {
    model::Segments segments;
    if (length == time_) return segments;
    for (std::int64_t row = 0; row < rows_; row += time_)
      for (std::int64_t begin = 0; begin < time_; begin += length) segments.starts.push_back(row + begin);
    segments.starts.push_back(rows_);
    segments.longest = length;
    segments.on_device = at::tensor(at::IntArrayRef(segments.starts), at::kInt).to(device_);
    return segments;
  }

  // A query sees half of its record: two products of 2 x head_dim operations forward; backward has five products where forward has two.
  void attention(const std::string& name, std::int64_t length) {
    const auto qkv = random({rows_, dims_.qkv_width()}), dout = random({rows_, dims_.q_width()});
    const model::HeadViews heads = model::head_views(qkv, qkv, dims_, time_);
    model::Segments segments = segments_of(length);
    const std::int64_t batch = rows_ / time_, whole = time_ / length, rest = time_ % length;
    const double pairs = static_cast<double>(batch * dims_.heads * (whole * length * length + rest * rest)) / 2;
    const double forward = 4 * pairs * static_cast<double>(dims_.head_dim);
    const std::string shape = shape_of({batch * time_ / length, dims_.heads, length, dims_.head_dim});
    model::AttentionSaved saved;
    computes(name + " forward", shape, forward, [&] { model::attention_forward(heads, segments, saved); });
    computes(name + " backward", shape, 2.5 * forward, [&] { model::attention_backward(dout, heads, segments, saved); });
  }

  void matmul(const std::string& name, std::int64_t rows, std::int64_t in, std::int64_t out) {
    const auto x = random({rows, in}), weight = random({out, in}), y = zeros({rows, out});
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
    const std::string shape = shape_of({rows, in, out});
    computes("matmul " + name + " forward", shape, flops, [&] { model::linear(y, x, weight); });
    computes("matmul " + name + " input gradient", shape, flops, [&] { model::linear_backward_input(x, y, weight); });
    const auto dweight = zeros({out, in});
    computes("matmul " + name + " weight gradient", shape, flops, [&] { model::linear_backward_weight(dweight, y, x); });
  }

  at::Tensor bytes(std::int64_t rows, std::int64_t columns, kernels::Fp8 format) const {
    return at::empty({rows, columns}, options_.dtype(kernels::scalar_type(format)));
  }

  const kernels::Fp8Table& fp8() const { return kernels::fp8_table(device_); }

  void fp8_copies() {
    const auto x = random({rows_, 2 * dims_.intermediate}), scale = kernels::make_fp8_scales(1, device_)[0];
    const auto out = bytes(x.size(0), x.size(1), kernels::Fp8::e5m2), transposed = bytes(x.size(1), x.size(0), kernels::Fp8::e5m2);
    moves("fp8 measure", x, bytes_of({x}), [&] { kernels::fp8_measure(fp8(), x, kernels::Fp8::e5m2, scale); });
    moves("fp8 cast", x, bytes_of({x, out}), [&] { kernels::fp8_cast(fp8(), x, scale, out, {}); });
    moves("fp8 cast transposed", x, bytes_of({x, out}), [&] { kernels::fp8_cast(fp8(), x, scale, {}, transposed); });
    moves("fp8 cast both ways", x, bytes_of({x, out, transposed}), [&] { kernels::fp8_cast(fp8(), x, scale, out, transposed); });
  }

  kernels::Fp8Matrix random_fp8(std::int64_t rows, std::int64_t columns, kernels::Fp8 format) const {
    const auto x = random({rows, columns});
    kernels::Fp8Matrix made{bytes(rows, columns, format), kernels::make_fp8_scales(1, device_)[0]};
    kernels::fp8_measure(fp8(), x, format, made.scale);
    kernels::fp8_cast(fp8(), x, made.scale, made.values, {});
    return made;
  }

  // The products alone, their factors cast already.
  void fp8_matmul(const std::string& name, std::int64_t in, std::int64_t out) {
    using enum kernels::Fp8;
    const double flops = 2.0 * static_cast<double>(rows_) * static_cast<double>(in) * static_cast<double>(out);
    const auto product = [&](const char* which, std::int64_t rows, std::int64_t inner, std::int64_t columns, kernels::Fp8 format,
                             kernels::Into into, kernels::Sums sums) {
      const auto left = random_fp8(rows, inner, format), right = random_fp8(columns, inner, e4m3);
      const auto result = zeros({rows, columns});
      if (!kernels::fp8_matmul(fp8(), result, left, right, into, sums)) return;
      computes("fp8 matmul " + name + which, shape_of({rows_, in, out}), flops,
               [&] { kernels::fp8_matmul(fp8(), result, left, right, into, sums); });
    };
    product(" forward", rows_, in, out, e4m3, kernels::Into::write, kernels::Sums::fast);
    product(" input gradient", rows_, out, in, e5m2, kernels::Into::write, kernels::Sums::fast);
    product(" weight gradient", out, rows_, in, e5m2, kernels::Into::add, kernels::Sums::exact);
  }

  at::Device device_;
  model::Dims dims_;
  at::TensorOptions options_;
  std::int64_t time_, rows_;
  std::vector<KernelResult> results_;
};

}  // namespace

KernelsResult measure_kernels(const KernelsRequest& request) {
  const kernels::Session session(request.device, /*deterministic=*/false);
  KernelsResult result{.model = request.model.name,
                       .device = train::describe_device(request.device),
                       .dtype = std::string(config::name_of(request.model.dtype)),
                       .rows = request.batch_size * request.seq_len};
  result.ceilings = measure_ceilings(request.device, model::scalar_type(request.model.dtype));
  result.kernels = KernelBench(request).run();
  return result;
}

}  // namespace lockstep::bench
