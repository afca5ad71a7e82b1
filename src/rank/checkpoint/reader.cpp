// Reading checkpoints back, and finding the newest one that is whole.
#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "base/error.h"
#include "rank/checkpoint/checkpoint.h"
#include "rank/checkpoint/manifest.h"
#include "rank/checkpoint/pages.h"
#include "rank/checkpoint/safetensors.h"

namespace lockstep::checkpoint {
namespace {

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += fmt::format("{}{}", text.size() > 1 ? ", " : "", size);
  return text + "]";
}

void check_file(const std::filesystem::path& folder, const FileRecord& record) {
  const std::filesystem::path path = folder / record.name;
  const auto bytes = base::real_files().size(path);
  if (!bytes) throw base::checkpoint_error("checkpoint", "{} is damaged: {} is missing", folder.string(), record.name);
  if (*bytes != record.bytes) {
    throw base::checkpoint_error("checkpoint", "{} is damaged: it has {} bytes instead of {}", path.string(), *bytes, record.bytes);
  }
}

void check_content(std::span<const std::byte> bytes, std::uint32_t checksum, std::string_view what) {
  if (base::crc32c(bytes) != checksum) throw base::checkpoint_error("checkpoint", "{} is damaged: its checksum differs", what);
}

}  // namespace

struct Reader::Impl {
  std::filesystem::path folder;
  Manifest manifest;
  std::map<std::string, SafetensorsFile> files;
  std::map<std::pair<std::string, std::string>, const TensorRecord*> tensors;  // by kind and name

  const TensorRecord& record(std::string_view kind, const std::string& name) const {
    const auto found = tensors.find({std::string(kind), name});
    if (found == tensors.end()) throw base::checkpoint_error("checkpoint", "{} has no {} tensor {}", folder.string(), kind, name);
    return *found->second;
  }
};

Reader::Reader(const std::filesystem::path& folder) : impl_(std::make_unique<Impl>()) {
  impl_->folder = folder;
  impl_->manifest = read_manifest(folder);
  for (const FileRecord& file : impl_->manifest.files) {
    check_file(folder, file);
    if (file.name.ends_with(".safetensors")) impl_->files.emplace(file.name, folder / file.name);
  }
  for (const TensorRecord& tensor : impl_->manifest.tensors) {
    const auto file = impl_->files.find(tensor.file);
    const TensorEntry* entry = file == impl_->files.end() ? nullptr : file->second.find(tensor.name);
    if (entry == nullptr || entry->shape != tensor.shape || dtype_name(entry->dtype) != tensor.dtype) {
      throw base::checkpoint_error("checkpoint", "{} is damaged: {} does not hold tensor {} as its manifest says", folder.string(),
                                   tensor.file, tensor.name);
    }
    impl_->tensors[{tensor.kind, tensor.name}] = &tensor;
  }
}

Reader::~Reader() = default;

const std::filesystem::path& Reader::folder() const { return impl_->folder; }

std::string Reader::state_json() const { return base::read_text(impl_->folder / "state.json"); }

std::vector<std::string> Reader::names(std::string_view kind) const {
  std::vector<std::string> names;
  for (const TensorRecord& tensor : impl_->manifest.tensors) {
    if (tensor.kind == kind) names.push_back(tensor.name);
  }
  return names;
}

std::vector<std::int64_t> Reader::shape(std::string_view kind, const std::string& name) const { return impl_->record(kind, name).shape; }

void Reader::read(std::string_view kind, const std::string& name, const at::Tensor& target) const {
  const TensorRecord& record = impl_->record(kind, name);
  if (target.sizes() != at::IntArrayRef(record.shape)) {
    throw base::checkpoint_error("checkpoint",
                                 "{}: {} tensor {} has shape {}, this model needs {}. The model section of the config must be the one "
                                 "the checkpoint was trained with.",
                                 impl_->folder.string(), kind, name, shape_text(record.shape), shape_text(target.sizes()));
  }
  target.copy_(view(kind, name));
}

at::Tensor Reader::view(std::string_view kind, const std::string& name) const {
  const TensorRecord& record = impl_->record(kind, name);
  const SafetensorsFile& file = impl_->files.at(record.file);
  const TensorEntry& entry = *file.find(name);
  const auto bytes = file.bytes(entry);
  check_content(bytes, record.checksum, fmt::format("tensor {} in {}", name, file.path().string()));
  const auto options = at::TensorOptions().dtype(entry.dtype);
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % c10::elementSize(entry.dtype) == 0)
    return at::from_blob(const_cast<std::byte*>(bytes.data()), entry.shape, options);  // only read
  at::Tensor copy = at::empty(entry.shape, options);
  std::memcpy(copy.data_ptr(), bytes.data(), bytes.size());
  return copy;
}

void Reader::forget(std::string_view kind, const std::string& name) const {
  const SafetensorsFile& file = impl_->files.at(impl_->record(kind, name).file);
  drop_pages(file.bytes(*file.find(name)));
}

void Reader::verify() const {
  for (const FileRecord& record : impl_->manifest.files) {
    const auto path = impl_->folder / record.name;
    const auto mapped = impl_->files.find(record.name);
    if (mapped != impl_->files.end()) {
      check_content(mapped->second.file_bytes(), record.checksum, path.string());
    } else {
      check_content(base::MappedFile(path).bytes(), record.checksum, path.string());
    }
  }
}

std::optional<std::filesystem::path> newest_whole(const std::filesystem::path& folder, std::vector<std::string>* skipped) {
  const auto skip = [&](std::string text) {
    if (skipped != nullptr) skipped->push_back(std::move(text));
  };
  for (const StepFolder& found : list_step_folders(folder)) {
    if (found.state == StepFolder::State::deleting) continue;
    if (found.state == StepFolder::State::partial) {
      skip(fmt::format("{}: its save did not finish", found.path.string()));
      continue;
    }
    try {
      Reader(found.path).verify();
      return found.path;
    } catch (const base::UserError& error) {
      skip(error.what());
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::checkpoint
