// Reading checkpoints back, and finding the newest one that is whole.
#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>

#include "base/error.h"
#include "base/hash/crc32c.h"
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

void check_file(const std::filesystem::path& folder, const FileEntry& record) {
  const std::filesystem::path path = folder / record.name;
  const auto bytes = base::real_files().size(path);
  if (!bytes) throw base::checkpoint_error("checkpoint", "{} is damaged: {} is missing", folder.string(), record.name);
  if (*bytes != record.bytes) {
    throw base::checkpoint_error("checkpoint", "{} is damaged: it has {} bytes instead of {}", path.string(), *bytes, record.bytes);
  }
}

base::UserError damaged(std::string_view what) { return base::checkpoint_error("checkpoint", "{} is damaged: its checksum differs", what); }

void check_content(std::span<const std::byte> bytes, std::uint32_t checksum, std::string_view what) {
  if (base::crc32c(bytes) != checksum) throw damaged(what);
}

// A mapped file, of which no more than a chunk is in this process's memory at a time.
void check_file(std::span<const std::byte> bytes, std::uint32_t checksum, const std::filesystem::path& path) {
  constexpr std::size_t chunk = 32u << 20;
  std::uint32_t crc = 0;
  for (std::size_t at = 0; at < bytes.size(); at += chunk) {
    const auto some = bytes.subspan(at, std::min(chunk, bytes.size() - at));
    crc = base::crc32c(some, crc);
    drop_pages(some);
  }
  if (crc != checksum) throw damaged(path.string());
}

// One tensor as its file and its manifest tell of it.
struct StoredSlices {
  const SafetensorsFile* file = nullptr;
  const TensorEntry* entry = nullptr;
  std::vector<const SliceEntry*> slices;  // in order, covering all of it
  std::deque<std::atomic<bool>> checked;  // by slice: its checksum has been compared

  std::int64_t elements() const { return static_cast<std::int64_t>(entry->bytes() / c10::elementSize(entry->dtype)); }
  std::int64_t covered() const { return slices.empty() ? 0 : slices.back()->begin + slices.back()->count; }
  // Numbers [begin, begin + count), every slice that they lie in compared with its checksum.
  std::span<const std::byte> numbers(std::int64_t begin, std::int64_t count, std::atomic<std::uint64_t>& bytes_read);
};

std::span<const std::byte> StoredSlices::numbers(std::int64_t begin, std::int64_t count, std::atomic<std::uint64_t>& bytes_read) {
  const std::size_t element = c10::elementSize(entry->dtype);
  const auto bytes = file->bytes(*entry);
  const auto part = [&](std::int64_t first, std::int64_t size) {
    return bytes.subspan(static_cast<std::size_t>(first) * element, static_cast<std::size_t>(size) * element);
  };
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const SliceEntry& slice = *slices[i];
    const std::int64_t first = std::max(begin, slice.begin), last = std::min(begin + count, slice.begin + slice.count);
    if (first >= last) continue;
    if (checked[i]) {
      bytes_read += part(first, last - first).size();
      continue;
    }
    const auto all = part(slice.begin, slice.count);
    check_content(all, slice.checksum, fmt::format("tensor {} in {}", slice.name, file->path().string()));
    bytes_read += all.size();
    checked[i] = true;
  }
  return part(begin, count);
}

}  // namespace

struct Reader::Impl {
  std::filesystem::path folder;
  Manifest manifest;
  std::map<std::string, SafetensorsFile> files;
  std::map<std::pair<std::string, std::string>, StoredSlices> tensors;  // by kind and name
  std::atomic<std::uint64_t> bytes_read = 0;

  bool add(SliceEntry& record);
  StoredSlices& tensor(std::string_view kind, const std::string& name) {
    const auto found = tensors.find({std::string(kind), name});
    if (found == tensors.end()) throw base::checkpoint_error("checkpoint", "{} has no {} tensor {}", folder.string(), kind, name);
    return found->second;
  }
  base::UserError differs(const SliceEntry& record) const {
    return base::checkpoint_error("checkpoint", "{} is damaged: {} does not hold tensor {} as its manifest says", folder.string(),
                                  record.file, record.name);
  }
};

// False where the file has it otherwise, or where it does not follow what is there of its tensor.
bool Reader::Impl::add(SliceEntry& record) {
  const auto file = files.find(record.file);
  const TensorEntry* entry = file == files.end() ? nullptr : file->second.find(record.name);
  if (entry == nullptr || entry->shape != record.shape || dtype_name(entry->dtype) != record.dtype) return false;
  StoredSlices& stored = tensors[{record.kind, record.name}];
  if (stored.slices.empty()) stored.file = &file->second, stored.entry = entry;
  const auto place = static_cast<std::uint64_t>(file->second.bytes(*entry).data() - file->second.file_bytes().data());
  if (manifest.version == 1) record.count = stored.elements(), record.offset = place;  // whole tensors
  const std::int64_t left = stored.elements() - stored.covered();
  const bool empty = record.count == 0 && (stored.elements() > 0 || !stored.slices.empty());
  if (stored.entry != entry || record.begin != stored.covered() || record.count < 0 || record.count > left || empty) return false;
  if (record.offset != place + static_cast<std::uint64_t>(record.begin) * c10::elementSize(entry->dtype)) return false;
  stored.slices.push_back(&record);
  stored.checked.emplace_back(false);
  return true;
}

Reader::Reader(const std::filesystem::path& folder) : impl_(std::make_unique<Impl>()) {
  impl_->folder = folder;
  impl_->manifest = read_manifest(folder);
  for (const FileEntry& file : impl_->manifest.files) {
    check_file(folder, file);
    if (file.name.ends_with(".safetensors")) impl_->files.emplace(file.name, folder / file.name);
  }
  for (SliceEntry& record : impl_->manifest.tensors) {
    if (!impl_->add(record)) throw impl_->differs(record);
  }
  for (const auto& [name, stored] : impl_->tensors) {
    if (stored.covered() != stored.elements()) throw impl_->differs(*stored.slices.back());
  }
}

Reader::~Reader() = default;

const std::filesystem::path& Reader::folder() const { return impl_->folder; }

std::string Reader::state_json() const { return base::read_text(impl_->folder / "state.json"); }

std::vector<std::string> Reader::names(std::string_view kind) const {
  std::vector<std::string> names;
  for (const SliceEntry& slice : impl_->manifest.tensors) {
    if (slice.kind == kind && slice.begin == 0) names.push_back(slice.name);
  }
  return names;
}

std::vector<std::int64_t> Reader::shape(std::string_view kind, const std::string& name) const {
  return impl_->tensor(kind, name).entry->shape;
}

void Reader::read(std::string_view kind, const std::string& name, const at::Tensor& target) const {
  const std::vector<std::int64_t> stored = shape(kind, name);
  if (target.sizes() != at::IntArrayRef(stored)) {
    throw base::checkpoint_error("checkpoint",
                                 "{}: {} tensor {} has shape {}, this model needs {}. The model section of the config must be the one "
                                 "the checkpoint was trained with.",
                                 impl_->folder.string(), kind, name, shape_text(stored), shape_text(target.sizes()));
  }
  target.copy_(view(kind, name));
  forget(kind, name);
}

void Reader::read_slice(std::string_view kind, const std::string& name, std::int64_t begin, const at::Tensor& target) const {
  StoredSlices& stored = impl_->tensor(kind, name);
  if (begin < 0 || begin > stored.elements() || target.numel() > stored.elements() - begin) {
    throw base::checkpoint_error("checkpoint", "{}: {} tensor {} has {} numbers, this model asks for {} from number {} on.",
                                 impl_->folder.string(), kind, name, stored.elements(), target.numel(), begin);
  }
  target.copy_(tensor_of(stored.numbers(begin, target.numel(), impl_->bytes_read), stored.entry->dtype, target.sizes()));
  forget(kind, name);
}

at::Tensor Reader::view(std::string_view kind, const std::string& name) const {
  StoredSlices& stored = impl_->tensor(kind, name);
  return tensor_of(stored.numbers(0, stored.elements(), impl_->bytes_read), stored.entry->dtype, stored.entry->shape);
}

void Reader::forget(std::string_view kind, const std::string& name) const {
  const StoredSlices& stored = impl_->tensor(kind, name);
  drop_pages(stored.file->bytes(*stored.entry));
}

std::uint64_t Reader::bytes_read() const { return impl_->bytes_read; }

std::uint64_t Reader::bytes_held() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, stored] : impl_->tensors) bytes += stored.entry->bytes();
  return bytes;
}

void Reader::verify(const Share& share) const {
  const std::vector<FileEntry>& files = impl_->manifest.files;
  for (std::size_t i = static_cast<std::size_t>(share.index); i < files.size(); i += static_cast<std::size_t>(share.count)) {
    const FileEntry& record = files[i];
    impl_->bytes_read += record.bytes;
    const auto path = impl_->folder / record.name;
    const auto mapped = impl_->files.find(record.name);
    if (mapped != impl_->files.end()) {
      check_file(mapped->second.file_bytes(), record.checksum, path);
    } else {
      check_file(base::MappedFile(path).bytes(), record.checksum, path);
    }
  }
}

std::optional<std::filesystem::path> newest_whole(const std::filesystem::path& folder, std::vector<std::string>* skipped,
                                                  const LookThrough& look) {
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
      std::string damage;
      if (look)
        damage = look(found.path);
      else
        Reader(found.path).verify();
      if (damage.empty()) return found.path;
      skip(std::move(damage));
    } catch (const base::UserError& error) {
      skip(error.what());
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::checkpoint
