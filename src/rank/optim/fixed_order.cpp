// Cuts work where its shape says, then lets threads take the pieces.
#include "rank/optim/fixed_order.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/ceil_div.h"
#include "base/error.h"

extern "C" int MKL_Set_Num_Threads_Local(int threads) __attribute__((weak));  // where LibTorch has MKL; its C name

namespace lockstep::optim {

namespace {

using base::ceil_div;

constexpr std::int64_t kBlock = 16384;      // numbers that one thread adds up
constexpr std::int64_t kColumns = 256;      // columns that one thread adds up at a time
constexpr std::int64_t kProductRows = 128;  // rows of a product that one thread makes

void check(const at::Tensor& x) {
  base::check(x.scalar_type() == at::kFloat && x.is_contiguous(), "sums of a fixed order are of dense f32 numbers");
}

// In lanes of its own, because a compiler may not change the order of a sum.
double sum_of(const float* x, std::int64_t count) {
  constexpr std::int64_t kLanes = 8;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += double(x[i + lane]);
  for (; i < count; ++i) lanes[i % kLanes] += double(x[i]);
  return std::accumulate(std::begin(lanes), std::end(lanes), 0.0);
}

// While it lives, BLAS uses the calling thread alone. MKL cuts a product for as many threads as it believes to have, even where it is
// called from one of several and gets no other.
class OneThread {
 public:
  OneThread() : before_(MKL_Set_Num_Threads_Local ? MKL_Set_Num_Threads_Local(1) : 0) {}
  ~OneThread() {
    if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(before_);
  }
  OneThread(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace

at::Tensor fixed_sum(const at::Tensor& x) {
  check(x);
  if (!x.is_cpu()) return x.sum();
  const std::int64_t blocks = ceil_div(x.numel(), kBlock);
  const float* numbers = x.const_data_ptr<float>();
  std::vector<double> parts(static_cast<std::size_t>(blocks));
  at::parallel_for(0, blocks, 4, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i)
      parts[static_cast<std::size_t>(i)] = sum_of(numbers + i * kBlock, std::min(kBlock, x.numel() - i * kBlock));
  });
  return at::empty({}, x.options()).fill_(std::accumulate(parts.begin(), parts.end(), 0.0));
}

at::Tensor fixed_row_sums(const at::Tensor& x) {
  check(x);
  if (!x.is_cpu()) return x.sum(1);
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const at::Tensor out = at::empty({rows}, x.options());
  const float* numbers = x.const_data_ptr<float>();
  auto* sums = out.mutable_data_ptr<float>();
  at::parallel_for(0, rows, ceil_div(kBlock, columns), [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row) sums[row] = float(sum_of(numbers + row * columns, columns));
  });
  return out;
}

at::Tensor fixed_column_sums(const at::Tensor& x) {
  check(x);
  if (!x.is_cpu()) return x.sum(0);
  const std::int64_t rows = x.size(0), columns = x.size(1);
  const at::Tensor out = at::empty({columns}, x.options());
  const float* numbers = x.const_data_ptr<float>();
  auto* sums = out.mutable_data_ptr<float>();
  at::parallel_for(0, ceil_div(columns, kColumns), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto stripe = begin; stripe < end; ++stripe) {
      const std::int64_t first = stripe * kColumns, width = std::min(kColumns, columns - first);
      double sum[kColumns] = {};
      for (std::int64_t row = 0; row < rows; ++row) {
        const float* from = numbers + row * columns + first;
        for (std::int64_t i = 0; i < width; ++i) sum[i] += double(from[i]);
      }
      for (std::int64_t i = 0; i < width; ++i) sums[first + i] = float(sum[i]);
    }
  });
  return out;
}

at::Tensor fixed_root(const at::Tensor& x) {
  check(x);
  if (!x.is_cpu()) return x.sqrt();
  return at::empty({}, x.options()).fill_(std::sqrt(x.item<float>()));
}

at::Tensor fixed_mm(const at::Tensor& a, const at::Tensor& b, double scale, const at::Tensor& plus, double more) {
  if (!a.is_cpu()) return plus.defined() ? at::addmm(plus, a, b, more, scale) : at::mm(a, b);
  const std::int64_t rows = a.size(0), blocks = ceil_div(rows, kProductRows);
  at::Tensor out = at::empty({rows, b.size(1)}, a.options());
  const auto make = [&](std::int64_t begin, std::int64_t end) {
    const OneThread alone;
    for (auto i = begin; i < end; ++i) {
      const std::int64_t first = i * kProductRows, count = std::min(kProductRows, rows - first);
      at::Tensor part = out.narrow(0, first, count);
      const at::Tensor left = a.narrow(0, first, count);
      if (plus.defined())
        at::addmm_out(part, plus.narrow(0, first, count), left, b, more, scale);
      else
        at::mm_out(part, left, b);
    }
  };
  at::parallel_for(0, blocks, 1, make);
  return out;
}

}  // namespace lockstep::optim
