// One thread, one poll(); state is shared under one mutex that is free while the thread waits.
#include "front/launch/meet/links.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "front/launch/meet/pack.h"

namespace lockstep::launch::meet {
namespace {

constexpr double time_to_prove_s = 10;
constexpr std::size_t unproven_at_once = 64;  // the oldest makes room for the next
constexpr double sign_of_life_every_s = 2;
constexpr double last_words_s = 1;
constexpr std::size_t streams_at_once = 4096;
constexpr std::size_t stream_piece = 32u << 10;
constexpr std::size_t enough_queued = 4u << 20;  // then streams are read no further
constexpr int poll_ms = 200;

enum Own : std::uint8_t { alive = Links::first_own_kind, stream_begins, stream_bytes, stream_ends };

struct Link {
  Channel channel;
  std::int64_t begun_ns = base::now_ns();
  std::int64_t heard_ns = base::now_ns();
  std::int64_t spoke_ns = 0;
  bool ours = false;      // we made the connection: its end is always told
  bool told = false;      // that it has joined
  bool dropping = false;  // to be closed when all is out
};

// One connection of a rank to the store, carried over a link.
struct Stream {
  Socket socket;
  std::string out;
};
using StreamName = std::pair<int, std::int64_t>;  // link, number that the side that began it gave

}  // namespace

class Links::Worker {
 public:
  Worker(std::string secret, double silence_s)
      : secret_(std::move(secret)), silence_s_(silence_s), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    thread_ = std::thread([this] { run(); });
  }

  ~Worker() {
    {
      const base::Lock lock(mutex_);
      ending_ns_ = base::now_ns();
      listener_ = Socket();
    }
    wake();
    thread_.join();
  }

  void listen(Socket listener) {
    change([&]() LOCKSTEP_REQUIRES(mutex_) { listener_ = std::move(listener); });
  }

  int add(Socket connected, Channel::Side side) {
    int number = 0;
    change([&]() LOCKSTEP_REQUIRES(mutex_) { number = insert(std::move(connected), side); });
    return number;
  }

  void send(int link, std::uint8_t kind, std::string_view body) {
    change([&]() LOCKSTEP_REQUIRES(mutex_) { send_now(link, kind, body); });
  }

  void drop(int link) {
    change([&]() LOCKSTEP_REQUIRES(mutex_) {
      if (const auto found = links_.find(link); found != links_.end()) found->second.dropping = true;
    });
  }

  std::vector<Event> take() {
    const base::Lock lock(mutex_);
    return std::exchange(events_, {});
  }

  Address address_of(int link, Address (*which)(const Socket&)) {
    const base::Lock lock(mutex_);
    const auto found = links_.find(link);
    return found == links_.end() ? loopback(0) : which(found->second.channel.socket());
  }

  void end_streams_at(int port) {
    change([&]() LOCKSTEP_REQUIRES(mutex_) { stream_port_ = port; });
  }

  int begin_streams_over(int link) {
    int port = 0;
    change([&]() LOCKSTEP_REQUIRES(mutex_) {
      if (!stream_listener_.open()) stream_listener_ = listen_at(loopback(0), 1024);
      if (!stream_listener_.open()) throw base::machine_error("launch", "cannot listen on 127.0.0.1 for the ranks of this machine.");
      stream_link_ = link;
      port = local_address(stream_listener_).port();
    });
    return port;
  }

 private:
  template <typename Change>
  void change(const Change& make) LOCKSTEP_UNCHECKED {
    {
      const base::Lock lock(mutex_);
      make();
    }
    wake();
  }

  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.file(), &one, sizeof one);
  }

  int insert(Socket socket, Channel::Side side) LOCKSTEP_REQUIRES(mutex_) {
    const int number = next_link_++;
    links_.emplace(number, Link{.channel = Channel(std::move(socket), side, secret_), .ours = side == Channel::Side::second});
    return number;
  }

  void send_now(int link, std::uint8_t kind, std::string_view body) LOCKSTEP_REQUIRES(mutex_) {
    const auto found = links_.find(link);
    if (found == links_.end() || !found->second.channel.established() || found->second.dropping) return;
    found->second.channel.send(kind, body);
    found->second.spoke_ns = base::now_ns();
  }

  void run() {
    for (;;) {
      std::vector<pollfd> files;
      {
        const base::Lock lock(mutex_);
        keep_time();
        if (may_end()) return;
        files = what_to_poll();
      }
      ::poll(files.data(), files.size(), poll_ms);
      const base::Lock lock(mutex_);
      std::uint64_t count = 0;
      [[maybe_unused]] const auto drained = ::read(wake_.file(), &count, sizeof count);
      std::map<int, short> ready;
      for (const pollfd& file : files) {
        if (file.revents != 0) ready[file.fd] = file.revents;
      }
      serve_listeners(ready);
      serve_links(ready);
      serve_streams(ready);
    }
  }

  bool may_end() const LOCKSTEP_REQUIRES(mutex_) {
    if (ending_ns_ == 0) return false;
    const bool all_out = std::none_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second.channel.has_to_write(); });
    return all_out || base::seconds_since(ending_ns_) > last_words_s;
  }

  std::vector<pollfd> what_to_poll() const LOCKSTEP_REQUIRES(mutex_) {
    std::vector<pollfd> files = {{wake_.file(), POLLIN, 0}};
    if (listener_.open()) files.push_back({listener_.file(), POLLIN, 0});
    if (stream_listener_.open()) files.push_back({stream_listener_.file(), POLLIN, 0});
    for (const auto& [number, link] : links_)
      files.push_back({link.channel.socket().file(), static_cast<short>(POLLIN | (link.channel.has_to_write() ? POLLOUT : 0)), 0});
    for (const auto& [name, stream] : streams_) {
      const auto link = links_.find(name.first);
      const bool room = link != links_.end() && link->second.channel.queued_bytes() < enough_queued;
      files.push_back({stream.socket.file(), static_cast<short>((room ? POLLIN : 0) | (stream.out.empty() ? 0 : POLLOUT)), 0});
    }
    return files;
  }

  // Strangers' time runs out, signs of life go out, silent links are lost.
  void keep_time() LOCKSTEP_REQUIRES(mutex_) {
    std::vector<std::pair<int, ChannelError>> over;
    for (auto& [number, link] : links_) {
      if (!link.channel.established()) {
        if (base::seconds_since(link.begun_ns) > time_to_prove_s)
          over.emplace_back(number, ChannelError(ChannelError::Why::closed, "it did not prove that it knows the secret in time"));
        continue;
      }
      if (link.dropping && !link.channel.has_to_write()) {
        over.emplace_back(number, ChannelError(ChannelError::Why::closed, ""));
      } else if (base::seconds_since(link.heard_ns) > silence_s_) {
        over.emplace_back(number, ChannelError(ChannelError::Why::closed, fmt::format("nothing was heard for {:.0f} s", silence_s_)));
      } else if (base::seconds_since(link.spoke_ns) > sign_of_life_every_s) {
        send_now(number, alive, "");
      }
    }
    for (const auto& [number, error] : over) lose(number, error);
  }

  void lose(int number, const ChannelError& error) LOCKSTEP_REQUIRES(mutex_) {
    const auto found = links_.find(number);
    if (found == links_.end()) return;
    const Link& link = found->second;
    const auto kind = link.told || link.ours ? Event::Kind::left : Event::Kind::refused;
    const std::string who = peer_address(link.channel.socket()).host();
    if (!link.dropping)
      events_.push_back({.kind = kind, .link = number, .text = kind == Event::Kind::refused ? who : error.what(), .why = error.why});
    std::erase_if(streams_, [&](const auto& entry) { return entry.first.first == number; });
    links_.erase(found);
  }

  void serve_listeners(const std::map<int, short>& ready) LOCKSTEP_REQUIRES(mutex_) {
    if (listener_.open() && ready.contains(listener_.file())) {
      Socket socket = accept_from(listener_);
      if (!socket.open()) return void(::usleep(10'000));  // out of files, for example: not in a hot loop
      make_room();
      insert(std::move(socket), Channel::Side::first);
    }
    if (stream_listener_.open() && ready.contains(stream_listener_.file())) {
      Socket socket = accept_from(stream_listener_);
      if (!socket.open() || streams_.size() >= streams_at_once || !links_.contains(stream_link_)) return;
      const std::int64_t number = next_stream_++;
      streams_.emplace(StreamName(stream_link_, number), Stream{std::move(socket), {}});
      send_now(stream_link_, stream_begins, Packer().number(number).take());
    }
  }

  void make_room() LOCKSTEP_REQUIRES(mutex_) {
    std::vector<int> unproven;
    for (const auto& [number, link] : links_) {
      if (!link.channel.established()) unproven.push_back(number);
    }
    if (unproven.size() >= unproven_at_once) lose(unproven.front(), ChannelError(ChannelError::Why::closed, "too many strangers at once"));
  }

  void serve_links(const std::map<int, short>& ready) LOCKSTEP_REQUIRES(mutex_) {
    std::vector<int> numbers;
    for (const auto& [number, link] : links_) numbers.push_back(number);
    for (const int number : numbers) {
      const auto found = links_.find(number);
      if (found == links_.end()) continue;
      Link& link = found->second;
      try {
        if (ready.contains(link.channel.socket().file())) link.channel.read();
        hear(number, link);
        link.channel.write();
      } catch (const ChannelError& error) {
        hear_the_rest(number, link);
        lose(number, error);
      } catch (const Malformed& error) {
        lose(number, ChannelError(ChannelError::Why::forged, error.what()));
      }
    }
  }

  void hear(int number, Link& link) LOCKSTEP_REQUIRES(mutex_) {
    if (link.channel.established() && !link.told) {
      link.told = true;
      link.heard_ns = base::now_ns();
      events_.push_back({.kind = Event::Kind::joined, .link = number});
    }
    while (auto frame = link.channel.next()) {
      link.heard_ns = base::now_ns();
      if (frame->kind < Links::first_own_kind)
        events_.push_back({.kind = Event::Kind::frame, .link = number, .frame = std::move(*frame)});
      else
        carry(number, *frame);
    }
  }

  // Last words that came with the end of the connection.
  void hear_the_rest(int number, Link& link) LOCKSTEP_REQUIRES(mutex_) {
    try {
      hear(number, link);
    } catch (const Malformed&) {
    }
  }

  void carry(int link, const Frame& frame) LOCKSTEP_REQUIRES(mutex_) {
    if (frame.kind == alive) return;
    Unpacker unpacked(frame.body);
    const StreamName name(link, unpacked.number());
    if (frame.kind == stream_begins) {
      std::string error;
      Socket socket = stream_port_ > 0 && streams_.size() < streams_at_once ? connect_within(loopback(stream_port_), 1, error) : Socket();
      if (socket.open())
        streams_.emplace(name, Stream{std::move(socket), {}});
      else
        send_now(link, stream_ends, Packer().number(name.second).take());
    } else if (frame.kind == stream_ends) {
      const auto found = streams_.find(name);
      if (found == streams_.end()) return;
      write_out(found->second);  // what came before its end
      streams_.erase(found);
    } else if (const auto found = streams_.find(name); found != streams_.end()) {
      found->second.out += unpacked.text();
      if (found->second.out.size() > Channel::most_bytes) end_stream(name);  // nobody reads there
    }
  }

  void serve_streams(const std::map<int, short>& ready) LOCKSTEP_REQUIRES(mutex_) {
    std::vector<StreamName> over;
    for (auto& [name, stream] : streams_) {
      bool good = write_out(stream);
      const auto found = ready.find(stream.socket.file());
      if (good && found != ready.end() && (found->second & (POLLIN | POLLHUP | POLLERR)) != 0) good = read_in(name, stream);
      if (!good) over.push_back(name);
    }
    for (const StreamName& name : over) end_stream(name);
  }

  void end_stream(const StreamName& name) LOCKSTEP_REQUIRES(mutex_) {
    if (streams_.erase(name) > 0) send_now(name.first, stream_ends, Packer().number(name.second).take());
  }

  bool read_in(const StreamName& name, const Stream& stream) LOCKSTEP_REQUIRES(mutex_) {
    char bytes[stream_piece];
    const ssize_t got = ::recv(stream.socket.file(), bytes, sizeof bytes, 0);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (got == 0) return false;
    send_now(name.first, stream_bytes, Packer().number(name.second).text({bytes, static_cast<std::size_t>(got)}).take());
    return true;
  }

  static bool write_out(Stream& stream) {
    while (!stream.out.empty()) {
      const ssize_t sent = ::send(stream.socket.file(), stream.out.data(), stream.out.size(), MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
      stream.out.erase(0, static_cast<std::size_t>(sent));
    }
    return true;
  }

  const std::string secret_;
  const double silence_s_;
  const Socket wake_;
  base::Mutex mutex_;
  std::thread thread_;
  Socket listener_ LOCKSTEP_GUARDED_BY(mutex_), stream_listener_ LOCKSTEP_GUARDED_BY(mutex_);
  int stream_link_ LOCKSTEP_GUARDED_BY(mutex_) = -1;
  int stream_port_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int next_link_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::int64_t next_stream_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::int64_t ending_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::map<int, Link> links_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<StreamName, Stream> streams_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Event> events_ LOCKSTEP_GUARDED_BY(mutex_);
};

Links::Links(std::string secret, double silence_s) : worker_(std::make_unique<Worker>(std::move(secret), silence_s)) {}
Links::~Links() = default;
void Links::listen(Socket listener) { worker_->listen(std::move(listener)); }
int Links::add(Socket connected) { return worker_->add(std::move(connected), Channel::Side::second); }
void Links::send(int link, std::uint8_t kind, std::string_view body) { worker_->send(link, kind, body); }
void Links::drop(int link) { worker_->drop(link); }
std::vector<Links::Event> Links::take() { return worker_->take(); }
std::string Links::local_host(int link) const { return worker_->address_of(link, &local_address).host(); }
std::string Links::peer_host(int link) const { return worker_->address_of(link, &peer_address).host(); }
void Links::end_streams_at(int port) { worker_->end_streams_at(port); }
int Links::begin_streams_over(int link) { return worker_->begin_streams_over(link); }

}  // namespace lockstep::launch::meet
