// Sums gradients over ranks while backward still runs: buckets start in order of completion, one sync a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "rank/comm/comm.h"
#include "rank/parallel/exchange.h"
#include "rank/model/weights/whole_store.h"

namespace lockstep::parallel {

// Listens to the store, which must outlive it, as must the gradient buffer. One thread.
class GradientSync final : public Exchange {
 public:
  // gradients: one buffer that holds those of all trained units, in the order backward completes them.
  GradientSync(const at::Tensor& gradients, model::WholeStore& store, const config::ParallelConfig& options);
  ~GradientSync() override;
  GradientSync(const GradientSync&) = delete;

  void arm(const comm::Group& group) override;
  void start_all(const comm::Group& group) override;
  void replay(const comm::Group& group, const std::function<void()>& launch) override;
  void finish(const comm::Group& group) override;

  struct Bucket {
    at::Tensor gradients;  // slice of the buffer
    std::string what;      // "gradients of block 14"
    int leaves = 0;        // how many leaves overlap it
  };
  const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  struct Leaf {
    std::size_t unit, index;
    std::size_t first_bucket, last_bucket;
    bool ready = false;
  };
  void make_buckets(const at::Tensor& gradients, std::int64_t bucket_elements);
  void leaf_ready(std::size_t leaf);
  void start_complete_buckets();
  void start(Bucket& bucket);
  std::vector<std::string> missing() const;

  at::Tensor gradients_;
  model::WholeStore& store_;
  config::ParallelConfig options_;
  at::ScalarType wire_ = at::kFloat;
  std::vector<Bucket> buckets_;
  std::vector<Leaf> leaves_;
  std::vector<std::size_t> first_leaf_;  // by unit
  // While armed:
  const comm::Group* group_ = nullptr;
  std::vector<int> pending_;  // per bucket: leaves still to come
  std::size_t next_ = 0;      // buckets before this one have started
  std::vector<comm::Work> works_;
};

}  // namespace lockstep::parallel
