// How a file system breaks.
#include "support/files/faulty_files.h"

#include <fstream>

namespace lockstep::support {

namespace fs = std::filesystem;

namespace {

bool inside(const fs::path& path, const fs::path& folder) { return path == folder || path.string().starts_with(folder.string() + "/"); }

}  // namespace

void FaultyFiles::follow(const fs::path& from, const fs::path& to) {
  const auto moved = [&](const fs::path& path) {
    return inside(path, from) ? fs::path(to.string() + path.string().substr(from.string().size())) : path;
  };
  std::set<fs::path> unsynced;
  for (const fs::path& path : unsynced_files_) unsynced.insert(moved(path));
  unsynced_files_ = std::move(unsynced);
  const auto move_keys = [&](auto& map) {
    std::remove_reference_t<decltype(map)> there;
    for (auto& [path, value] : map) there[moved(path)] = std::move(value);
    map = std::move(there);
  };
  move_keys(sizes_);
  move_keys(unsynced_ranges_);
  move_keys(written_ranges_);
  for (NameChange& change : unsynced_names_) {
    if (change.to != from) change = {change.from, moved(change.to)};  // the folder's own name has its own entry
  }
}

void FaultyFiles::step(std::string_view doing, const fs::path& path) {
  const std::int64_t operation = operations_++;
  if (operation >= crash_at) throw base::checkpoint_error("files", "cannot {} {}: the machine lost power", doing, path.string());
  if (operation == fail_at) throw base::checkpoint_error("files", "cannot {} {}: {}", doing, path.string(), fail_text);
}

std::size_t FaultyFiles::take_room(const fs::path& path, std::size_t bytes) {
  std::int64_t used = 0;
  for (const auto& [file, size] : sizes_) used += size;
  const auto room = static_cast<std::size_t>(std::max<std::int64_t>(0, disk_bytes - used));
  const std::size_t taken = std::min(bytes, room);
  sizes_[path] += static_cast<std::int64_t>(taken);
  return taken;
}

std::size_t FaultyFiles::take_room(const fs::path& path, std::uint64_t begin, std::size_t bytes) {
  auto& written = written_ranges_[path];
  std::uint64_t end = begin + bytes, fresh = bytes, first = begin, last = end;
  auto next = written.upper_bound(begin);
  if (next != written.begin() && std::prev(next)->second >= begin) --next;
  while (next != written.end() && next->first <= end) {  // joined with all that it touches
    fresh -= std::min(end, next->second) - std::max(begin, next->first);
    first = std::min(first, next->first), last = std::max(last, next->second);
    next = written.erase(next);
  }
  written[first] = last;
  const std::size_t taken = take_room(path, fresh);
  return taken == fresh ? bytes : taken;
}

class FaultyFiles::Appender final : public base::FileAppender {
 public:
  Appender(FaultyFiles& owner, fs::path path) : owner_(owner), path_(std::move(path)), file_(path_, std::ios::binary | std::ios::app) {}

  Result append(std::string_view bytes) override {
    const std::lock_guard lock(owner_.mutex_);
    try {
      owner_.step("append to", path_);
    } catch (const base::UserError& error) {
      return {0, error.what()};
    }
    const std::size_t fits = owner_.take_room(path_, bytes.size());
    file_.write(bytes.data(), static_cast<std::streamsize>(fits)).flush();
    return {fits, fits < bytes.size() ? "No space left on device" : ""};
  }

 private:
  FaultyFiles& owner_;
  fs::path path_;
  std::ofstream file_;
};

std::unique_ptr<base::FileAppender> FaultyFiles::open_to_append(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  step("open to append", path);
  return std::make_unique<Appender>(*this, path);
}

class FaultyFiles::Writer final : public base::FileWriter {
 public:
  Writer(FaultyFiles& owner, fs::path path) : owner_(owner), path_(std::move(path)), file_(path_, std::ios::binary | std::ios::trunc) {
    if (!file_) throw base::checkpoint_error("files", "cannot create {}: No such file or directory", path_.string());
  }

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(owner_.mutex_);
    file_.seekp(static_cast<std::streamoff>(offset));
    try {
      owner_.step("write", path_);
    } catch (...) {
      put(bytes.first(bytes.size() / 2));
      throw;
    }
    const auto fits = bytes.first(owner_.take_room(path_, bytes.size()));
    put(fits);
    if (fits.size() < bytes.size()) throw base::checkpoint_error("files", "cannot write {}: No space left on device", path_.string());
  }
  void sync_and_close() override {
    const std::lock_guard lock(owner_.mutex_);
    owner_.step("sync", path_);
    file_.close();
    owner_.unsynced_files_.erase(path_);
  }

 private:
  void put(std::span<const std::byte> bytes) {
    file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())).flush();
  }

  FaultyFiles& owner_;
  fs::path path_;
  std::ofstream file_;
};

std::unique_ptr<base::FileWriter> FaultyFiles::create(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  step("create", path);
  if (!fs::exists(path)) unsynced_names_.push_back({{}, path});
  unsynced_files_.insert(path);
  sizes_[path] = 0;
  return std::make_unique<Writer>(*this, path);
}

class FaultyFiles::SharedWriter final : public base::FileWriter {
 public:
  SharedWriter(FaultyFiles& owner, fs::path path)
      : owner_(owner), path_(std::move(path)), file_(path_, std::ios::binary | std::ios::in | std::ios::out) {}

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(owner_.mutex_);
    try {
      owner_.step("write", path_);
    } catch (...) {
      put(offset, bytes.first(bytes.size() / 2));
      throw;
    }
    const auto fits = bytes.first(owner_.take_room(path_, offset, bytes.size()));
    put(offset, fits);
    if (fits.size() < bytes.size()) throw base::checkpoint_error("files", "cannot write {}: No space left on device", path_.string());
  }
  void sync_and_close() override {
    const std::lock_guard lock(owner_.mutex_);
    owner_.step("sync", path_);
    file_.close();
    std::erase_if(owner_.unsynced_ranges_[path_], [&](const Range& range) { return range.writer == this; });
  }

 private:
  void put(std::uint64_t offset, std::span<const std::byte> bytes) {
    file_.seekp(static_cast<std::streamoff>(offset));
    file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())).flush();
    owner_.unsynced_ranges_[path_].push_back({offset, offset + bytes.size(), this});
  }

  FaultyFiles& owner_;
  fs::path path_;
  std::fstream file_;
};

std::unique_ptr<base::FileWriter> FaultyFiles::open_to_share(const fs::path& path, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  step("create", path);
  if (!fs::exists(path)) {
    unsynced_names_.push_back({{}, path});
    if (!std::ofstream(path, std::ios::binary | std::ios::app))  // what another instance, another machine, has written stays
      throw base::checkpoint_error("files", "cannot create {}: No such file or directory", path.string());
  }
  fs::resize_file(path, size);
  return std::make_unique<SharedWriter>(*this, path);
}

void FaultyFiles::rename(const fs::path& from, const fs::path& to) {
  const std::lock_guard lock(mutex_);
  step("rename to", to);
  base::real_files().rename(from, to);
  follow(from, to);
  unsynced_names_.push_back({from, to});
}

void FaultyFiles::sync_directory(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  step("sync", path);
  std::erase_if(unsynced_names_, [&](const NameChange& change) { return change.to.parent_path() == path; });
}

void FaultyFiles::create_directories(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  step("create the folder", path);
  if (!fs::exists(path)) unsynced_names_.push_back({{}, path});
  base::real_files().create_directories(path);
}

void FaultyFiles::remove_all(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  step("remove", path);
  base::real_files().remove_all(path);
  const auto gone = [&](const auto& entry) { return inside(entry.first, path); };
  std::erase_if(sizes_, gone);
  std::erase_if(unsynced_ranges_, gone);
  std::erase_if(written_ranges_, gone);
  std::erase_if(unsynced_files_, [&](const fs::path& file) { return inside(file, path); });
}

std::optional<std::uint64_t> FaultyFiles::size(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  const auto real = base::real_files().size(path);
  const std::int64_t look = looks_[path]++;
  if (!real || look >= stale_looks) return real;
  return look % 2 == 0 ? std::nullopt : std::optional(*real / 2);
}

std::size_t FaultyFiles::read_at(const fs::path& path, std::uint64_t offset, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  step("read", path);
  const std::int64_t look = looks_[path]++;
  if (look < stale_looks) bytes = bytes.first(look % 2 == 0 ? 0 : bytes.size() / 2);
  return base::real_files().read_at(path, offset, bytes);
}

void FaultyFiles::lose_power(bool keep_names) {
  const std::lock_guard lock(mutex_);
  for (const fs::path& path : unsynced_files_) {
    if (fs::exists(path)) fs::resize_file(path, fs::file_size(path) / 2);
  }
  for (const auto& [path, ranges] : unsynced_ranges_) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    for (const Range& range : ranges) {
      if (file)
        file.seekp(static_cast<std::streamoff>(range.begin))
            .write(std::string(range.end - range.begin, '\0').data(), static_cast<std::streamsize>(range.end - range.begin));
    }
  }
  if (keep_names) return;
  while (!unsynced_names_.empty()) {
    const NameChange change = unsynced_names_.back();
    unsynced_names_.pop_back();
    if (!fs::exists(change.to)) continue;  // gone since
    if (change.from.empty()) {
      fs::remove_all(change.to);
    } else if (!fs::exists(change.from)) {
      fs::rename(change.to, change.from);
      follow(change.to, change.from);
    }
  }
}

}  // namespace lockstep::support
