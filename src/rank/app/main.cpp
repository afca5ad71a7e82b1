// The program `lockstep-worker`: one rank. `lockstep` starts it; its words go to the rank's log and page.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>
#include <thread>

#include "base/error.h"
#include "base/file/refusal.h"
#include "base/log.h"
#include "base/signal_flag.h"
#include "config/config.h"
#include "rank/bench/worker.h"
#include "rank/kernels/plugin.h"
#include "rank/train/memory/full_memory.h"
#include "rank/train/run.h"
#include "rank/verbs/export.h"
#include "rank/verbs/generate.h"
#include "rank/verbs/probe.h"

namespace {

using namespace lockstep;

// "--name value" pairs after the verb.
verbs::Arguments read_arguments(int argc, char** argv) {
  verbs::Arguments values;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strncmp(argv[i], "--", 2) != 0) throw base::Bug(fmt::format("worker argument {} is not --name value", argv[i]));
    values[argv[i] + 2] = argv[i + 1];
  }
  return values;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

at::Device open_device() {
  const std::string name = environment("LOCKSTEP_DEVICE");
  const at::Device device(name.empty() ? "cpu" : name);
  if (device.is_cuda()) {
    // Segments that grow leave no holes between models' buffers of different sizes; read when CUDA starts.
    ::setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", 0);
    kernels::cuda_plugin();
  }
  return device;
}

// SIGTERM asks a rank to finish its step, save and leave; SIGINT is left to `lockstep`, which shares the terminal.
void run_train(const verbs::Arguments& arguments, const std::shared_ptr<journal::PageWriter>& page, const comm::Place& place) {
  const base::SignalFlag terminate(SIGTERM, base::Calls::go_on);
  const base::IgnoredSignal interrupt(SIGINT);
  const auto run = train::build_run({.config = config::load_resolved(arguments.at("config")),
                                     .folder = arguments.at("run"),
                                     .device = open_device(),
                                     .place = place,
                                     .page = page,
                                     .lease = environment("LOCKSTEP_LEASE"),
                                     .asked_to_stop = [&] { return terminate.raised(); }});
  train::train(*run);
  page->set_phase(journal::Phase::done, run->progress.step);
}

void run_generate(const std::string& verb, const verbs::Arguments& arguments, const std::shared_ptr<journal::PageWriter>& page,
                  const comm::Place& place) {
  const verbs::GenerateRequest request = verbs::parse_generate_request(arguments, open_device());
  if (verb == "chat") return verbs::serve_chat(request, place, page);
  if (verb == "generate-file") return verbs::generate_file(request, place, page);
  verbs::generate_one(request);
}

// Exit code for an error, told to the page first: the launcher reports the first rank that failed, not the ones that noticed.
int fail(journal::PageWriter& page, base::ExitCode code, const std::string& text) {
  page.set_failure(text, static_cast<int>(code));
  base::log_error("{}", text);
  // Others' failures show up as broken connections here. Waiting a moment lets the rank that failed first be seen first.
  if (text.starts_with("[comm]")) std::this_thread::sleep_for(std::chrono::seconds(2));
  return static_cast<int>(code);
}

int guarded(journal::PageWriter& page, const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const base::UserError& error) {
    return fail(page, error.code(), error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    const base::UserError refused = base::refusal(error);
    return fail(page, refused.code(), refused.what());
  } catch (const base::Bug& error) {
    return fail(page, base::ExitCode::bug, error.what());
  } catch (const std::bad_alloc&) {
    const base::UserError full = train::full_host("");
    return fail(page, full.code(), full.what());
  } catch (const c10::DistError& error) {
    // A store or a connection that other ranks share: whatever happened, it is not this rank's bug.
    const std::string text = error.what_without_backtrace();
    return fail(page, base::ExitCode::run,
                fmt::format("[comm] rank {} lost the others: {}. Look for a rank or a machine that ended first.", environment("RANK"),
                            text.substr(0, text.find('\n'))));
  } catch (const c10::Error& error) {
    if (const auto full = train::full_memory(error)) return fail(page, full->code(), full->what());
    return fail(page, base::ExitCode::bug, fmt::format("[libtorch] {}", error.what()));
  } catch (const std::exception& error) {
    return fail(page, base::ExitCode::bug, fmt::format("[worker] {}", error.what()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  std::shared_ptr<journal::PageWriter> page;
  comm::Place place;
  try {
    place = comm::place_from_environment();
    page = std::make_shared<journal::PageWriter>(environment("LOCKSTEP_PAGE"), place.rank);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(base::ExitCode::usage);
  }
  const base::LogPrefix prefix(fmt::format("rank {}", place.rank));
  const int code = guarded(*page, [&] {
    const auto arguments = read_arguments(argc, argv);
    if (verb == "train") return run_train(arguments, page, place);
    if (verb == "generate" || verb == "generate-file" || verb == "chat") return run_generate(verb, arguments, page, place);
    if (verb == "merge") return void(std::cout << verbs::merge_adapters(verbs::parse_merge_request(arguments)) << std::endl);
    if (verb == "export") return void(std::cout << verbs::export_checkpoint(verbs::parse_export_request(arguments)) << std::endl);
    if (verb == "probe") return void(std::cout << verbs::probe(arguments, open_device()) << std::endl);
    if (verb.starts_with("bench-")) return bench::run(verb, arguments, open_device(), place, page);
    throw base::usage_error("worker", "lockstep-worker is started by lockstep; '{}' is not one of its verbs.", verb);
  });
  std::cout.flush();
  // Not exit(): after a failure, destructors of connections would wait for ranks that are gone.
  std::_Exit(code);
}
