// What befalls a run that trains.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_training() {
  return {
      {.code = "LS-601",
       .title = "The loss is not finite",
       .symptom =
           "loss nan or inf, 'steps in a row were skipped', 'Gradient overflow. Skipping step', 'Current loss scale already at minimum'.",
       .cause = "The learning rate is too high, warm-up too short, f16 overflowed, or a sample is broken.",
       .fix = "lower trainer.learning_rate, raise trainer.warmup_steps, use --dtype bf16, or look at the samples that the message names",
       .patterns = {"steps in a row were skipped", "loss is nan", "loss: nan", "'loss': nan", "loss nan",
                    "current loss scale already at minimum", "gradient overflow", "found nan in", "loss is not finite", "loss:  nan",
                    "'grad_norm': nan", "grad_norm: nan", "overflow! rank * skipping step", "returned nan values"}},
      {.code = "LS-602",
       .title = "Ranks hold different weights",
       .symptom = "'the weights of rank 1 differ from rank 0's'.",
       .cause = "A device computed something else than the others, memory changed, or machines read different base models.",
       .fix = "go back to a checkpoint from before (--resume PATH) and check that rank's GPU with `lockstep check`",
       .patterns = {"the weights of rank * differ", "the frozen weights of rank * differ", "params do not match", "model parameters differ",
                    "ddp expects same model across all ranks", "appears not to match sizes of the same param"}},
      {.code = "LS-603",
       .title = "Parameters got no gradient",
       .symptom = "'parameters got no gradient in this step', 'Expected to have finished reduction in the prior iteration'.",
       .cause = "Some parameters took no part in the loss, so their reduction never began.",
       .fix = "if the model leaves them out on purpose, set parallel.find_unused_parameters=true",
       .patterns = {"parameters got no gradient", "expected to have finished reduction in the prior iteration",
                    "expected to mark a variable ready only once", "element 0 of tensors does not require grad"}},
      {.code = "LS-604",
       .title = "A crash: likely a bug",
       .symptom = "'Segmentation fault', 'Aborted', 'bug in lockstep', exit code 70.",
       .cause = "Something happened that the program promises cannot.",
       .fix = "this looks like a bug: keep the run folder, and report it with the log",
       .patterns = {"bug in lockstep", "segmentation fault", "sigsegv", "aborted*(core dumped)", "exitcode  : -11 (", "exitcode  : -6 ("}},
      {.code = "LS-605",
       .title = "Ended from outside",
       .symptom = "'Killed', 'terminated', 'CANCELLED DUE TO TIME LIMIT', 'Received 15 death signal'.",
       .cause =
           "A person, a scheduler (time limit, preemption) or the system ended the process. lockstep saves on SIGTERM; SIGKILL leaves no "
           "time for it.",
       .fix = "someone or something sent SIGKILL: `dmesg | tail` shows whether it was the kernel (out of memory); a job scheduler's limits "
              "are "
              "the next suspect",
       .patterns = {"due to time limit", "cancelled at", "death signal", "due to preemption", "sigterm", "sigkill", "got signal: 15",
                    "got signal: 2"}},
      {.code = "LS-606",
       .title = "A rank left before the others",
       .symptom = "'left with exit code 0 before the end, as if it were done'.",
       .cause = "A rank ended without an error while the others still trained.",
       .fix = "its log, in the run folder under ranks/, may say more; resuming from the newest checkpoint is safe",
       .patterns = {"left with exit code 0 before the end", "the ranks could not go on together"}},
  };
}

}  // namespace lockstep::catalog
