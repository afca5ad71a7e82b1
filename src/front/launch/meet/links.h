// The connections of this launcher to other machines' launchers, kept by a thread of their own: frames in both ways, signs of life, and
// streams of bytes, by which ranks reach the store of rank 0 though it listens on machine 0's loopback alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "front/launch/meet/channel.h"

namespace lockstep::launch::meet {

// Any thread may call. Strangers can open connections and nothing else: each has a few seconds and a few bytes to prove itself, and
// there is only so much room for those that have not.
class Links {
 public:
  struct Event {
    enum class Kind { joined, frame, left, refused };
    Kind kind = Kind::frame;
    int link = -1;
    Frame frame = {};
    std::string text = {};  // why it left; who was refused
    ChannelError::Why why = ChannelError::Why::closed;
  };

  // A proven connection counts as lost when nothing is heard for `silence_s`.
  Links(std::string secret, double silence_s);
  ~Links();  // what was sent before goes out first, if that takes no longer than a second
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  void listen(Socket listener);  // from now on others can connect
  int add(Socket connected);     // a connection we made; its number
  void send(int link, std::uint8_t kind, std::string_view body);
  void drop(int link);        // closed once everything sent before is out
  std::vector<Event> take();  // what has happened since, in order
  std::string local_host(int link) const;
  std::string peer_host(int link) const;

  // Streams that others open end at this loopback port; 0: nowhere.
  void end_streams_at(int port);
  // Connections to the returned loopback port become streams over this link. Asked again: of the newest link, at the same port.
  int begin_streams_over(int link);

  static constexpr std::uint8_t first_own_kind = 200;  // frames of these kinds never come to take()

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace lockstep::launch::meet
