// Trains a small model, stops it half way, goes on with it on another number of ranks, and has it write.
//   build/train [OUTPUT_FOLDER]
#include <lockstep/lockstep.h>

#include <cstdio>

namespace {

// Every step as it comes; stops after `stop_at`.
void follow(lockstep::Run& run, double stop_at) {
  while (const auto event = run.next()) {
    const auto loss = event->number("loss");
    if (!loss) continue;
    const double step = event->number("step").value_or(0);
    std::printf("step %.0f  loss %.4f  %.0f tokens/s\n", step, *loss, event->number("tokens_per_second").value_or(0));
    if (step == stop_at) run.stop();  // the step is finished and saved
  }
  run.wait();
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string output = argc > 1 ? argv[1] : "runs";
  lockstep::Run first({"-f", "models/nano.yaml", "--output", output, "--max-steps", "12", "--log-interval", "1", "--save-interval", "4"});
  follow(first, 6);
  for (const auto& checkpoint : first.checkpoints()) std::printf("checkpoint %s\n", checkpoint.path.c_str());

  lockstep::Run second = first.resume({"--ranks", "1"});
  follow(second, -1);
  const auto texts =
      lockstep::generate({"--run", second.folder(), "--max-tokens", "16", "--temperature", "0"}, {"Once upon a time", "The sea"});
  for (const auto& text : texts) std::printf("wrote: %s\n", text.c_str());
  return 0;
} catch (const lockstep::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.code();
}
