// The two ways batches reach a rank.
#include "rank/train/step/batches.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <span>

#include "rank/train/resume/from_first.h"

namespace lockstep::train {
namespace {

at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  return tensor.defined() ? tensor.to(device, tensor.scalar_type(), /*non_blocking=*/true) : tensor;
}

class OwnShare final : public BatchSource {
 public:
  OwnShare(std::shared_ptr<const data::Source> source, const data::Loader::Options& options, data::Position start)
      : loader_(std::move(source), options, start) {}

  std::vector<data::Batch> next(const comm::Group& group) override {
    std::vector<data::Batch> batches = loader_.next();
    for (data::Batch& batch : batches) {
      for (at::Tensor& field : batch.on_device) field = to_device(field, group.device());
    }
    return batches;
  }
  data::Position position() const override { return loader_.position(); }

 private:
  data::Loader loader_;
};

// Every rank walks over all ranks' batches: micro-batch m of rank r is number m * ranks + r of the step. So each knows the sample numbers
// and shapes of all; only what goes to the device travels, in one broadcast a micro-step.
class FromFirst final : public BatchSource {
 public:
  FromFirst(std::shared_ptr<const data::Source> source, const data::Loader::Options& options, data::Position start)
      : shard_(options.shard), loader_(std::move(source), of_all(options), start) {}

  std::vector<data::Batch> next(const comm::Group& group) override {
    std::vector<data::Batch> all = loader_.next(), mine;
    const auto ranks = static_cast<std::size_t>(shard_.count);
    for (std::size_t first = 0; first < all.size(); first += ranks) mine.push_back(hand_out(group, std::span(all).subspan(first, ranks)));
    return mine;
  }
  data::Position position() const override { return loader_.position(); }

 private:
  static data::Loader::Options of_all(data::Loader::Options options) {
    options.gradient_accumulation *= options.shard.count;
    options.prefetch *= options.shard.count;
    options.shard = {};
    return options;
  }

  // Where each batch's count and fields lie in the bytes that are sent.
  struct Extent {
    std::int64_t begin, bytes;
  };
  static std::vector<Extent> extents_of(const data::Batch& batch, std::int64_t& end) {
    std::vector<Extent> extents;
    const auto add = [&](std::size_t bytes) {
      extents.push_back({end, static_cast<std::int64_t>(bytes)});
      end += (static_cast<std::int64_t>(bytes) + 15) / 16 * 16;  // any type may be read from there
    };
    add(sizeof(batch.trained));
    for (const at::Tensor& field : batch.on_device) add(field.defined() ? field.nbytes() : 0);
    return extents;
  }

  data::Batch hand_out(const comm::Group& group, std::span<data::Batch> of_ranks) const {
    std::int64_t end = 0;
    std::vector<std::vector<Extent>> extents;
    for (const data::Batch& batch : of_ranks) extents.push_back(extents_of(batch, end));
    at::Tensor bytes = at::empty({end}, at::TensorOptions().dtype(at::kByte).device(shard_.index == 0 ? at::kCPU : group.device()));
    for (std::size_t rank = 0; shard_.index == 0 && rank < of_ranks.size(); ++rank) write(of_ranks[rank], extents[rank], bytes);
    bytes = to_device(bytes, group.device());
    group.broadcast(bytes, 0, "batches").wait();

    const auto own = static_cast<std::size_t>(shard_.index);
    data::Batch batch = std::move(of_ranks[own]);
    const auto read = [&](const Extent& extent, at::ScalarType type) { return bytes.narrow(0, extent.begin, extent.bytes).view(type); };
    if (shard_.index != 0) batch.trained = read(extents[own][0], at::kLong).item<std::int64_t>();
    for (std::size_t i = 0; i < batch.on_device.size(); ++i) {
      at::Tensor& field = batch.on_device[i];
      if (field.defined()) field = read(extents[own][i + 1], field.scalar_type()).view(field.sizes());
    }
    return batch;
  }

  static void write(const data::Batch& batch, const std::vector<Extent>& extents, const at::Tensor& bytes) {
    auto* to = bytes.mutable_data_ptr<std::uint8_t>();
    std::memcpy(to + extents[0].begin, &batch.trained, sizeof(batch.trained));
    for (std::size_t i = 0; i < batch.on_device.size(); ++i) {
      const at::Tensor& field = batch.on_device[i];
      if (field.defined()) std::memcpy(to + extents[i + 1].begin, field.const_data_ptr(), field.nbytes());
    }
  }

  data::Shard shard_;
  data::Loader loader_;
};

}  // namespace

std::unique_ptr<task::Task> open_task(const comm::Group& ranks, const config::RunConfig& config) {
  if (config.data.distributed_loading) return task::open_task(config);
  return task::open_task(config, [&](const std::function<std::string()>& mine) {
    const std::string text = ranks.rank() == 0 ? mine() : "";
    ranks.meet("opening the data");
    return text_from_first(ranks, text, "what the data is");
  });
}

std::unique_ptr<BatchSource> open_batches(bool distributed, std::shared_ptr<const data::Source> source,
                                          const data::Loader::Options& options, data::Position start) {
  if (distributed) return std::make_unique<OwnShare>(std::move(source), options, start);
  return std::make_unique<FromFirst>(std::move(source), options, start);
}

}  // namespace lockstep::train
