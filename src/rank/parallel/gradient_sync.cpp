// Cuts the gradient buffer into buckets and starts each as soon as its last gradient is written.
#include "rank/parallel/gradient_sync.h"

#include "base/error.h"
#include "rank/parallel/wire.h"

namespace lockstep::parallel {
namespace {

// Gradients of another type travel as copies. So many of those there are at most: the next waits for the oldest to come back.
constexpr std::size_t kCopiesUnderWay = 4;

}  // namespace

GradientSync::GradientSync(const at::Tensor& gradients, model::WholeStore& store, const config::ParallelConfig& options)
    : gradients_(gradients), store_(store), options_(options), first_leaf_(store.units()) {
  const auto bytes = static_cast<std::int64_t>(options.bucket_cap_mb * 1024 * 1024);
  const model::HeldSlice& first = store.updates().front();
  wire_ = wire_type(options, first.weights.scalar_type(), first.gradients.scalar_type());
  // Whole vector registers and cache lines on either side of a cut. By what travels: ranks may hold their gradients in different types.
  const std::int64_t elements = std::max<std::int64_t>(bytes / std::int64_t(c10::elementSize(wire_)) / 256 * 256, 256);
  make_buckets(gradients, elements);
  store.listen([this](std::size_t unit, std::size_t leaf) { leaf_ready(first_leaf_[unit] + leaf); });
}

GradientSync::~GradientSync() { store_.listen(nullptr); }

void GradientSync::make_buckets(const at::Tensor& gradients, std::int64_t bucket_elements) {
  // A reduction is element by element, so cuts need not fall between parameters: equal slices keep the link busy evenly.
  const std::int64_t count = (gradients.numel() + bucket_elements - 1) / bucket_elements;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = i * bucket_elements;
    buckets_.push_back({gradients.narrow(0, begin, std::min(bucket_elements, gradients.numel() - begin)), "", 0});
  }
  std::vector<std::pair<std::string, std::string>> span(buckets_.size());  // first and last unit of each bucket
  std::int64_t unit_begin = 0;
  for (const model::HeldSlice& slice : store_.updates()) {
    base::check(slice.gradients.data_ptr() == gradients.narrow(0, unit_begin, slice.count).data_ptr(),
                "units' gradients lie in the shared buffer in the order of completion");
    const std::int64_t unit_end = unit_begin + slice.count;
    const model::UnitSpec& spec = store_.spec(slice.unit);
    const layout::FlatLayout& flat = store_.flat(slice.unit);
    first_leaf_[slice.unit] = leaves_.size();
    for (std::size_t b = unit_begin / bucket_elements; b <= static_cast<std::size_t>((unit_end - 1) / bucket_elements); ++b) {
      if (span[b].first.empty()) span[b].first = spec.name;
      span[b].second = spec.name;
    }
    for (std::size_t i = 0; i < spec.leaves.size(); ++i) {
      const std::int64_t begin = unit_begin + flat.offsets[i].value();
      const std::int64_t end = begin + spec.leaves[i].elements();
      leaves_.push_back(
          {slice.unit, i, static_cast<std::size_t>(begin / bucket_elements), static_cast<std::size_t>((end - 1) / bucket_elements)});
      for (std::size_t b = leaves_.back().first_bucket; b <= leaves_.back().last_bucket; ++b) ++buckets_[b].leaves;
    }
    unit_begin = unit_end;
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].what = span[b].first == span[b].second ? fmt::format("gradients of {}", span[b].first)
                                                       : fmt::format("gradients of {} to {}", span[b].first, span[b].second);
  }
}

void GradientSync::arm(const comm::Group& group) {
  group_ = &group;
  next_ = 0;
  works_.clear();
  pending_.resize(buckets_.size());
  for (std::size_t b = 0; b < buckets_.size(); ++b) pending_[b] = buckets_[b].leaves;
  for (Leaf& leaf : leaves_) leaf.ready = false;
}

void GradientSync::leaf_ready(std::size_t index) {
  if (group_ == nullptr) return;  // an accumulation micro-step: nothing is reduced yet
  Leaf& leaf = leaves_[index];
  base::check(!leaf.ready, "a leaf's gradient is announced once a micro-step");
  leaf.ready = true;
  for (std::size_t b = leaf.first_bucket; b <= leaf.last_bucket; ++b) --pending_[b];
  start_complete_buckets();
}

void GradientSync::start_complete_buckets() {
  // In one fixed order on every rank, whatever order gradients came in.
  while (next_ < buckets_.size() && pending_[next_] == 0) start(buckets_[next_++]);
}

void GradientSync::start(Bucket& bucket) {
  if (bucket.gradients.scalar_type() != wire_ && works_.size() >= kCopiesUnderWay) works_[works_.size() - kCopiesUnderWay].wait();
  works_.push_back(group_->all_reduce_as(wire_, bucket.gradients, comm::Reduce::sum, bucket.what));
}

void GradientSync::start_all(const comm::Group& group) {
  arm(group);
  for (Leaf& leaf : leaves_) leaf.ready = true;
  while (next_ < buckets_.size()) start(buckets_[next_++]);
}

void GradientSync::replay(const comm::Group& group, const std::function<void()>& launch) {
  comm::Work work = group.replay(gradients_, "all gradients, by a recorded backward", launch);
  group_ = &group;  // finish() still follows, and has nothing to start
  next_ = buckets_.size();
  works_.clear();
  works_.push_back(std::move(work));
}

std::vector<std::string> GradientSync::missing() const {
  std::vector<std::string> names;
  for (const Leaf& leaf : leaves_) {
    if (leaf.ready) continue;
    add_names(names, store_.spec(leaf.unit).leaves[leaf.index]);
  }
  return names;
}

void GradientSync::finish(const comm::Group& group) {
  base::check(group_ == &group, "finish() follows arm() with the same group");
  if (next_ < buckets_.size()) {
    if (const auto names = missing(); !names.empty() && !options_.find_unused_parameters) {
      group_ = nullptr;
      throw without_gradient(group.rank(), names);
    }
    // Unused parameters contribute what their buffer holds: zero, or the earlier micro-steps' sum.
    while (next_ < buckets_.size()) start(buckets_[next_++]);
  }
  for (comm::Work& work : works_) work.wait();
  works_.clear();
  group_ = nullptr;
}

}  // namespace lockstep::parallel
