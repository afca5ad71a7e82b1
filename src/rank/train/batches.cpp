// The two ways batches reach a rank.
#include "rank/train/batches.h"

namespace lockstep::train {
namespace {

at::Tensor to_device(const at::Tensor& tensor, at::Device device) { return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/true); }

class OwnShare : public BatchSource {
 public:
  OwnShare(std::shared_ptr<const data::Corpus> corpus, const data::Loader::Options& options, data::Position start)
      : loader_(std::move(corpus), options, start) {}

  std::vector<data::Batch> next(const comm::Group& group) override {
    std::vector<data::Batch> batches = loader_.next();
    for (data::Batch& batch : batches) {
      batch.tokens = to_device(batch.tokens, group.device());
      batch.targets = to_device(batch.targets, group.device());
      if (batch.keys.defined()) batch.keys = to_device(batch.keys, group.device());
    }
    return batches;
  }
  data::Position position() const override { return loader_.position(); }

 private:
  data::Loader loader_;
};

// The shape of a corpus without its bytes: ranks that are handed their tokens need not read any.
class Outline : public data::Corpus {
 public:
  explicit Outline(std::shared_ptr<const data::Corpus> corpus) : corpus_(std::move(corpus)) {}
  std::int64_t samples() const override { return corpus_->samples(); }
  std::int64_t seq_len() const override { return corpus_->seq_len(); }
  std::int64_t length(std::int64_t sample) const override { return corpus_->length(sample); }
  bool fixed_length() const override { return corpus_->fixed_length(); }
  void read(std::int64_t, std::span<std::int64_t> tokens, std::span<std::int64_t> targets) const override {
    std::fill(tokens.begin(), tokens.end(), 0);
    std::fill(targets.begin(), targets.end(), 0);
  }
  bool packed() const override { return corpus_->packed(); }
  std::vector<std::int32_t> starts(std::int64_t sample) const override { return corpus_->starts(sample); }
  std::string fingerprint() const override { return corpus_->fingerprint(); }

 private:
  std::shared_ptr<const data::Corpus> corpus_;
};

class FromFirst : public BatchSource {
 public:
  FromFirst(std::shared_ptr<const data::Corpus> corpus, const data::Loader::Options& options, data::Position start)
      : shard_(options.shard),
        batch_size_(options.batch_size),
        loader_(shard_.index == 0 ? std::move(corpus) : std::make_shared<Outline>(std::move(corpus)), whole(options), start) {}

  std::vector<data::Batch> next(const comm::Group& group) override {
    // Every rank walks the same positions, so each knows sample numbers and shapes; only the tokens travel.
    std::vector<data::Batch> batches = loader_.next();
    for (data::Batch& batch : batches) {
      batch.tokens = hand_out(group, batch.tokens, "tokens");
      batch.targets = hand_out(group, batch.targets, "targets");
      if (batch.starts.defined()) batch.starts = own_starts(batch.starts, batch.tokens.size(1));
      if (batch.keys.defined()) batch.keys = to_device(batch.keys.narrow(0, shard_.index * batch_size_, batch_size_), group.device());
      const auto first = batch.samples.begin() + shard_.index * batch_size_;
      batch.samples = std::vector<std::int64_t>(first, first + batch_size_);
      batch.trained_tokens = batch.targets.ne(data::untrained).sum().item<std::int64_t>();
    }
    return batches;
  }
  data::Position position() const override { return loader_.position(); }

 private:
  static data::Loader::Options whole(data::Loader::Options options) {
    options.batch_size *= options.shard.count;
    options.shard = {};
    return options;
  }
  at::Tensor hand_out(const comm::Group& group, const at::Tensor& all, std::string_view what) const {
    const at::Tensor on_device = to_device(all, group.device());
    group.broadcast(on_device, 0, what).wait();
    return on_device.narrow(0, shard_.index * batch_size_, batch_size_);
  }
  // Of all rows' starts, those of this rank's rows, counted from its first row; a row's start is always among them.
  at::Tensor own_starts(const at::Tensor& all, std::int64_t time) const {
    const std::int64_t begin = shard_.index * batch_size_ * time, end = begin + batch_size_ * time;
    const at::Tensor mine = all.masked_select(all.ge(begin).logical_and(all.le(end)));
    return mine.sub(begin).to(at::kInt);
  }

  data::Shard shard_;
  std::int64_t batch_size_;
  data::Loader loader_;
};

}  // namespace

std::unique_ptr<BatchSource> read_own_share(std::shared_ptr<const data::Corpus> corpus, data::Loader::Options options,
                                            data::Position start) {
  return std::make_unique<OwnShare>(std::move(corpus), options, start);
}

std::unique_ptr<BatchSource> receive_from_first(std::shared_ptr<const data::Corpus> corpus, data::Loader::Options options,
                                                data::Position start) {
  return std::make_unique<FromFirst>(std::move(corpus), options, start);
}

}  // namespace lockstep::train
