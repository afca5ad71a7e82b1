// Locks that a compiler checks: clang's thread-safety analysis (tools/lint.sh) fails where something is touched without its lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#ifdef __clang__
#define LOCKSTEP_THREADS(attribute) __attribute__((attribute))
#else
#define LOCKSTEP_THREADS(attribute)
#endif
// Of a member: only with the lock. Of a pointer: what it points to.
#define LOCKSTEP_GUARDED_BY(mutex) LOCKSTEP_THREADS(guarded_by(mutex))
#define LOCKSTEP_POINTS_TO_GUARDED_BY(mutex) LOCKSTEP_THREADS(pt_guarded_by(mutex))
// Of a function, or of a lambda behind its parameters: whoever calls it holds the lock.
#define LOCKSTEP_REQUIRES(mutex) LOCKSTEP_THREADS(requires_capability(mutex))
// Of a function that runs others' lambdas under its lock: what those have captured cannot be followed.
#define LOCKSTEP_UNCHECKED LOCKSTEP_THREADS(no_thread_safety_analysis)

namespace lockstep::base {

class LOCKSTEP_THREADS(capability("mutex")) Mutex {
 public:
  void lock() LOCKSTEP_THREADS(acquire_capability()) { mutex_.lock(); }
  void unlock() LOCKSTEP_THREADS(release_capability()) { mutex_.unlock(); }

 private:
  friend class Lock;
  std::mutex mutex_;
};

// Holds a mutex until its end, but for what lies between unlock() and lock().
class LOCKSTEP_THREADS(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) LOCKSTEP_THREADS(acquire_capability(mutex)) : lock_(mutex.mutex_) {}
  ~Lock() LOCKSTEP_THREADS(release_capability()) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void lock() LOCKSTEP_THREADS(acquire_capability()) { lock_.lock(); }
  void unlock() LOCKSTEP_THREADS(release_capability()) { lock_.unlock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

// What threads wait for. A predicate that reads guarded members says so: [this]() LOCKSTEP_REQUIRES(mutex_) { return ready_; }
class Condition {
 public:
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

  template <typename Predicate>
  void wait(Lock& lock, Predicate holds) LOCKSTEP_UNCHECKED {
    changed_.wait(lock.lock_, holds);
  }
  // False where time was up first.
  template <typename Rep, typename Period, typename Predicate>
  bool wait_for(Lock& lock, std::chrono::duration<Rep, Period> time, Predicate holds) LOCKSTEP_UNCHECKED {
    return changed_.wait_for(lock.lock_, time, holds);
  }

 private:
  std::condition_variable changed_;
};

}  // namespace lockstep::base
