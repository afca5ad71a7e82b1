// Operations over host memory beside compute: one thread does them in order, and copies device tensors there and back. Works for any mix of
// devices.
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "rank/comm/wrapped_transport.h"

namespace lockstep::comm {
namespace {

// One operation's progress, shared by the thread that runs it and whoever waits.
struct Ticket {
  base::Mutex mutex;
  base::Condition changed;
  bool done LOCKSTEP_GUARDED_BY(mutex) = false;
  std::exception_ptr error LOCKSTEP_GUARDED_BY(mutex);
  double seconds LOCKSTEP_GUARDED_BY(mutex) = 0;

  void finish(std::exception_ptr failure, double took) {
    const base::Lock lock(mutex);
    done = true;
    seconds = took;
    error = std::move(failure);
    changed.notify_all();
  }
  void wait() {
    base::Lock lock(mutex);
    changed.wait(lock, [&]() LOCKSTEP_REQUIRES(mutex) { return done; });
    if (error) std::rethrow_exception(error);
  }
};

class QueuedTransport final : public WrappedTransport {
 public:
  QueuedTransport(std::shared_ptr<Transport> host, at::Device device)
      : WrappedTransport(std::move(host)), device_(device), thread_([this] { run(); }) {}
  ~QueuedTransport() override { stop(); }

  void shut_down() override {
    stop();
    WrappedTransport::shut_down();
  }

 private:
  Work start(const at::Tensor& out, const at::Tensor& in, Operation operation) override {
    auto ticket = std::make_shared<Ticket>();
    const std::shared_ptr<c10::Event> ready = device_.is_cpu() ? nullptr : std::make_shared<c10::Event>(device_.type());
    if (ready) ready->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    auto job = [out, in, operation = std::move(operation), ticket, ready] {
      std::exception_ptr failure;
      std::int64_t begin = base::now_ns();
      try {
        if (ready) {
          ready->synchronize();
          begin = base::now_ns();
          const at::Tensor host_in = in.to(at::kCPU);
          const at::Tensor host_out = out.is_same(in) ? host_in : at::empty(out.sizes(), out.options().device(at::kCPU));
          operation(host_out, host_in);
          out.copy_(host_out);
        } else {
          operation(out, in);
        }
      } catch (...) {
        failure = std::current_exception();
      }
      ticket->finish(std::move(failure), base::seconds_since(begin));
    };
    {
      const base::Lock lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
    return Work([ticket] { ticket->wait(); },
                [ticket] {
                  const base::Lock lock(ticket->mutex);
                  return ticket->done;
                },
                [ticket] {
                  const base::Lock lock(ticket->mutex);
                  return ticket->seconds;
                });
  }

  void run() {
    // A stream of its own: copies must not queue behind the backward pass that is still running.
    if (!device_.is_cpu()) {
      const c10::impl::VirtualGuardImpl guard(device_.type());
      guard.setDevice(device_);
      guard.exchangeStream(guard.getStreamFromGlobalPool(device_));
    }
    while (true) {
      std::function<void()> job;
      {
        base::Lock lock(mutex_);
        changed_.wait(lock, [&]() LOCKSTEP_REQUIRES(mutex_) { return stopping_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job();
    }
  }

  void stop() {
    {
      const base::Lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  at::Device device_;
  base::Mutex mutex_;
  base::Condition changed_;
  std::deque<std::function<void()>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

std::shared_ptr<Transport> make_queued_transport(std::shared_ptr<Transport> host, at::Device device) {
  return std::make_shared<QueuedTransport>(std::move(host), device);
}

}  // namespace lockstep::comm
