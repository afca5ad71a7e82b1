/* The same from C: prints the loss of every step. Arguments are those of `lockstep train`: build/losses -f models/nano.yaml --max-steps 5 */
#include <lockstep/lockstep_c.h>
#include <stdio.h>

int main(int argc, char** argv) {
  (void)argc;
  lockstep_run* run = lockstep_start(LOCKSTEP_INSTALLED_PROGRAM, (const char* const*)(argv + 1));
  const char* event;
  while ((event = lockstep_next(run, -1)) != NULL) {
    double step, loss;
    if (lockstep_number(event, "step", &step) && lockstep_number(event, "loss", &loss)) printf("%.0f %.9g\n", step, loss);
  }
  const int code = lockstep_wait(run);
  if (code != 0) fputs(lockstep_error(run), stderr);
  lockstep_free(run);
  return code;
}
