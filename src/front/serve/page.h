// The page as a server sees it: a request goes in, an answer comes out. Read this header first.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "front/serve/children/chats.h"
#include "front/serve/children/exports.h"
#include "front/serve/children/follow.h"
#include "front/serve/folders.h"
#include "front/serve/form/form.h"
#include "front/serve/guard.h"
#include "front/http/message.h"
#include "front/serve/runs/live.h"
#include "front/serve/runs/queue.h"
#include "front/serve/runs/run_log.h"
#include "front/serve/runs/runs.h"
#include "front/serve/children/starts.h"

namespace lockstep::serve {

// Everything the page shows is read from run folders, and everything it does is a command or a wish in a run's control file. Any thread.
class Page {
 public:
  struct Options {
    std::string host = "127.0.0.1", token, output = "runs", version;
    std::vector<std::string> folders;  // beside `output`
  };
  explicit Page(Options options);

  http::Response answer(const http::Request& request);

 private:
  using Json = nlohmann::ordered_json;
  struct Call {
    const http::Request& request;
    std::string name;  // what stands in the path where its route has a star
    const Json& body;
  };
  struct Route {
    std::string_view method, path;  // "/api/runs/*/series"
    http::Response (Page::*run)(const Call&);
  };
  static const std::vector<Route>& routes();
  http::Response answer_api(const http::Request& request);

  http::Response state(const Call& call);
  http::Response settings(const Call& call);
  http::Response plan(const Call& call);
  http::Response list_runs(const Call& call);
  http::Response show_run(const Call& call);
  http::Response show_series(const Call& call);
  http::Response show_log(const Call& call);
  http::Response start_run(const Call& call);
  http::Response resume_run(const Call& call);
  http::Response ask_run(const Call& call);
  http::Response end_run(const Call& call);
  http::Response export_run(const Call& call);
  http::Response delete_run(const Call& call);
  http::Response stream(const Call& call);
  http::Response show_machines(const Call& call);
  // page_tools.cpp
  http::Response import_file(const Call& call);
  http::Response inspect(const Call& call);
  http::Response placements(const Call& call);
  http::Response paths(const Call& call);
  http::Response presets(const Call& call);
  http::Response keep_preset(const Call& call);
  http::Response drop_preset(const Call& call);
  http::Response check_machine(const Call& call);
  http::Response explain(const Call& call);
  http::Response open_chat(const Call& call);
  http::Response ask_chat(const Call& call);
  http::Response stop_chat(const Call& call);
  http::Response close_chat(const Call& call);

  void expect_run(const std::string& name);
  // Answers that take long may not take all threads: the page itself must go on.
  http::Response slowly(const std::function<http::Response()>& answer);

  Options options_;
  Guard guard_;
  Folders folders_;
  RunLogs logs_;
  Starts starts_;
  Queue queue_;
  Runs runs_;
  Chats chats_;
  Follow check_;
  Exports exports_;
  Counting counting_;
  Live live_;
  std::atomic<int> slow_answers_ = 0;
};

}  // namespace lockstep::serve
