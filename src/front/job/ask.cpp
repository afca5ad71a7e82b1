// Wishes go by the control file, answers come by metrics.jsonl.
#include "front/job/ask.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file/refusal.h"
#include "base/file/last_name.h"
#include "base/hash/fresh.h"
#include "base/json.h"
#include "base/text.h"
#include "journal/lease.h"
#include "journal/run_folder.h"
#include "journal/tail.h"

namespace lockstep::job {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using journal::Asked;

constexpr double look_every_s = 0.05;
constexpr double see_who_lives_every_s = 1;

class Asking {
 public:
  Asking(const fs::path& run, std::span<const journal::Wish> wishes, double timeout_s)
      : folder_{run}, timeout_s_(timeout_s), tail_(folder_.metrics()) {
    for (const journal::Wish wish : wishes) asked_.push_back({base::fresh_id(2), wish});
    const auto holder = journal::lease_holder(run);
    if (!holder || holder->gone) {
      throw base::usage_error(
          "ask", "{} is not being trained{}: nobody could answer. `lockstep train` goes on with it by --name {} --resume auto.",
          run.string(), holder ? fmt::format(" any more (it was by {})", holder->name) : "", base::last_name(run));
    }
    lease_ = holder->token;
    tail_.skip_to_end();
  }

  std::vector<Answer> wait() {
    bool left = false;
    for (std::int64_t looked_ns = base::now_ns(); answers_.size() < asked_.size();) {
      if (!left) left = journal::leave_wishes(folder_.control(), asked_, lease_);
      std::this_thread::sleep_for(std::chrono::duration<double>(look_every_s));
      const bool look = base::seconds_since(looked_ns) > see_who_lives_every_s;
      const bool lives = !look || is_trained();
      if (look) looked_ns = base::now_ns();
      for (const std::string& line : tail_.poll().lines) hear(line);
      if (answers_.size() == asked_.size()) break;
      if (!lives) give_up(left, "has ended before it could {}.{}");
      if (base::seconds_since(begun_ns_) > timeout_s_)
        give_up(left, fmt::format("did not {{}} within {:g} s (--timeout).{{}}", timeout_s_));
    }
    std::vector<Answer> in_order;
    for (const Asked& asked : asked_) in_order.push_back(answers_.at(asked.id));
    return in_order;
  }

 private:
  bool is_trained() const {
    const auto holder = journal::lease_holder(folder_.root);
    return holder && !holder->gone && holder->token == lease_;
  }

  void hear(const std::string& line) {
    const Json json = base::json_if_any(line).value_or(nullptr);
    if (!json.is_object()) return;
    const std::string event = json.value("event", "");
    if (event == "sample") samples_[json.value("step", std::int64_t{0})].push_back({json.value("prompt", ""), json.value("text", "")});
    if (event != "wish") return;
    const std::string id = json.value("id", "");
    const auto asked = std::find_if(asked_.begin(), asked_.end(), [&](const Asked& one) { return one.id == id; });
    if (asked == asked_.end()) return;
    Answer answer{.wish = asked->wish,
                  .step = json.value("step", std::int64_t{0}),
                  .done = json.value("done", false),
                  .reason = json.value("reason", ""),
                  .checkpoint = json.value("checkpoint", "")};
    if (const auto loss = json.find("eval_loss"); loss != json.end() && loss->is_number()) answer.loss = loss->get<double>();
    if (answer.wish == journal::Wish::sample) answer.samples = samples_[answer.step];
    answers_[id] = std::move(answer);
  }

  [[noreturn]] void give_up(bool left, const std::string& why) const {
    // Rank 0 may be at work on it, or stand still.
    const bool taken_up = left && !journal::withdraw_wishes(folder_.control(), asked_);
    std::vector<std::string> open;
    for (const Asked& asked : asked_) {
      if (!answers_.contains(asked.id)) open.emplace_back(journal::name_of(asked.wish));
    }
    throw base::run_error("ask", "{} {} Its log is {}.", folder_.root.string(),
                          fmt::format(fmt::runtime(why), base::join(open, " and "), taken_up ? " It has taken the wish up." : ""),
                          folder_.rank_log(0).string());
  }

  journal::RunFolder folder_;
  double timeout_s_;
  std::int64_t begun_ns_ = base::now_ns();
  journal::Tail tail_;
  std::vector<Asked> asked_;
  std::string lease_;
  std::map<std::string, Answer> answers_;                        // by id
  std::map<std::int64_t, std::vector<Answer::Sample>> samples_;  // by step
};

}  // namespace

fs::path find_run(const std::string& run, const fs::path& output) {
  std::error_code error;
  for (const fs::path& folder : {fs::path(run), output / run}) {
    if (!run.empty() && fs::exists(journal::RunFolder{folder}.config(), error)) return folder.lexically_normal();
  }
  for (const fs::path& folder : {fs::path(run), output}) base::refuse_if_hidden(folder);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(output, error)) {
    if (fs::exists(journal::RunFolder{entry.path()}.config(), error)) names.push_back(entry.path().filename().string());
  }
  const auto near = base::nearest(run, names);
  throw base::usage_error("ask", "there is no run {} here, nor under {}.{} Give a run's folder, or its name and --output.", run,
                          output.string(), near ? fmt::format(" Did you mean {}?", *near) : "");
}

std::vector<Answer> ask(const fs::path& run, std::span<const journal::Wish> wishes, double timeout_s) {
  return Asking(run, wishes, timeout_s).wait();
}

}  // namespace lockstep::job
