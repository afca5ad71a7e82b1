// Memory that the ranks of a group share on one machine: a ring of bytes from each rank to each other one, and a bell for who waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file/descriptor.h"
#include "rank/comm/transport.h"

namespace lockstep::comm {

// A way from one rank to another: written by one thread, read by one thread of another process.
class Ring {
 public:
  struct Ends {
    alignas(64) std::atomic<std::uint64_t> written;  // bytes so far
    alignas(64) std::atomic<std::uint64_t> read;
  };
  Ring() = default;
  Ring(Ends* ends, std::span<std::byte> bytes) : ends_(ends), bytes_(bytes) {}

  std::size_t room() const { return bytes_.size() - waiting(); }
  std::size_t waiting() const { return ends_->written.load(std::memory_order_acquire) - ends_->read.load(std::memory_order_acquire); }
  // As many as there is room for, or as there are: how many.
  std::size_t put(std::span<const std::byte> bytes);
  std::size_t take(std::span<std::byte> bytes);

 private:
  Ends* ends_ = nullptr;
  std::span<std::byte> bytes_;  // a power of two
};

// Owns this rank's memory and its view of the others'. One thread. The kernel frees what a rank shared once nobody looks at it, however
// ranks end; nothing of it has a name in a file system.
class SharedMemory {
 public:
  // Collective over the store. Null on all ranks or on none: `reason` says, the same on all, who cannot see whose memory.
  static std::unique_ptr<SharedMemory> make(c10d::Store& store, Seat seat, std::string& reason);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;

  const Seat& seat() const { return seat_; }
  Ring& to(int rank) { return to_[static_cast<std::size_t>(rank)]; }
  Ring& from(int rank) { return from_[static_cast<std::size_t>(rank)]; }
  // Tells a rank that there is something to take from this one, or room again.
  void ring(int rank);
  // How often others have rung so far; wait() returns false if nobody has rung since, for so long.
  std::uint32_t rings() const;
  bool wait(std::uint32_t since, double seconds);
  // False once its process has ended.
  bool alive(int rank) const;

 private:
  struct Segment;
  explicit SharedMemory(Seat seat);
  std::string create();                                  // why it cannot be made, or nothing
  std::string where() const;                             // what others need to find it
  std::string open(int rank, const std::string& where);  // why it cannot be seen, or nothing
  Segment& segment(int rank) const;
  std::span<std::byte> ring_bytes(int owner, int reader) const;
  void connect();

  Seat seat_;
  std::size_t ring_bytes_, segment_bytes_;
  std::string name_;
  std::vector<base::Descriptor> files_;  // by rank
  std::vector<std::byte*> memory_;       // by rank
  std::vector<Ring> to_, from_;
};

}  // namespace lockstep::comm
