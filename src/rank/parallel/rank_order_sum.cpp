// Slices go to their ranks, which add them up.
#include "rank/parallel/rank_order_sum.h"

#include <ATen/ops/empty_like.h>

#include "rank/kernels/kernels.h"

namespace lockstep::parallel {

comm::Work reduce_in_rank_order(const comm::Group& group, const at::Tensor& mine, const at::Tensor& whole, std::string_view what) {
  if (mine.is_cpu() || group.size() == 1) return group.reduce_scatter(mine, whole, comm::Reduce::sum, what);  // in this order already
  const at::Tensor received = at::empty_like(whole);
  auto work = std::make_shared<comm::Work>(group.all_to_all(received, whole, what));
  return comm::Work(
      [work, received, mine, ranks = group.size()] {
        work->wait();
        kernels::sum_of_rows(mine, received.view({ranks, mine.numel()}));
      },
      [work] { return work->finished(); });
}

comm::Work rehearse_in_rank_order(const at::Tensor& whole) {
  if (whole.is_cpu()) return {};
  return comm::Work([received = at::empty_like(whole)] {}, [] { return false; });
}

}  // namespace lockstep::parallel
