// Sets up c10d::Reducer as DistributedDataParallel does.
#include "support/reducer/reducer_oracle.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <cstdlib>

#include "rank/comm/transport.h"

namespace lockstep::testing {

void reduce_with_libtorch(const comm::Place& place, std::map<std::string, at::Tensor>& parameters,
                          const std::function<at::Tensor()>& loss) {
  std::string meeting = std::getenv("LOCKSTEP_TEST_RESULT");
  meeting = meeting.substr(0, meeting.rfind('/')) + "/reducer-store";
  const auto store = c10::make_intrusive<c10d::FileStore>(meeting, place.world_size);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, place.rank, place.world_size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                    comm::make_gloo(store, place, {place.rank, place.world_size}, 30));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  std::vector<at::Tensor> tensors;
  std::unordered_map<std::size_t, std::string> names;
  std::vector<std::size_t> bucket;
  for (auto& [name, tensor] : parameters) {
    names[tensors.size()] = name;
    bucket.push_back(tensors.size());
    tensors.push_back(tensor);
  }
  c10d::Reducer reducer(tensors, {bucket}, group, std::vector<bool>(tensors.size(), false), 25 << 20, false, false, names, 1 << 20, false,
                        false, {});
  reducer.prepare_for_forward();
  const at::Tensor value = loss();
  reducer.prepare_for_backward({});
  value.backward();
}

}  // namespace lockstep::testing
