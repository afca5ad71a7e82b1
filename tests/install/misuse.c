/* The C interface used wrongly: every call with NULL, a program that is not there, a run that is given up, texts of other kinds. */
#include <lockstep/lockstep_c.h>
#include <stdio.h>
#include <string.h>

#define EXPECT(holds)                                          \
  if (!(holds)) {                                              \
    fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #holds); \
    return 1;                                                  \
  }

int main(int argc, char** argv) {
  const char* program = argc > 1 ? argv[1] : NULL;
  const int watched = argc > 2; /* by valgrind, under which posix_spawn cannot tell why it failed */
  double number = 7;
  char* error = NULL;
  EXPECT(lockstep_abi() == LOCKSTEP_ABI && strlen(lockstep_version()) > 0);

  EXPECT(lockstep_next(NULL, 0) == NULL && lockstep_is_over(NULL) && lockstep_folder(NULL) == NULL);
  EXPECT(strstr(lockstep_error(NULL), "there is no run") != NULL && lockstep_wait(NULL) == 70);
  lockstep_stop(NULL);
  lockstep_free(NULL);
  lockstep_free_text(NULL);
  lockstep_free_texts(NULL);

  EXPECT(!lockstep_number(NULL, "loss", &number) && !lockstep_number("{\"loss\": 1}", NULL, &number));
  EXPECT(!lockstep_number("{\"loss\": 1}", "loss", NULL) && !lockstep_number("{\"loss\": \"x\"}", "loss", &number));
  EXPECT(!lockstep_number("not JSON", "loss", &number) && !lockstep_number("[1]", "loss", &number) && number == 7);
  EXPECT(lockstep_text(NULL, "a") == NULL && lockstep_text("{\"a\": 1}", "a") == NULL && lockstep_text("{", "a") == NULL);

  lockstep_run* nobody = lockstep_start("/nowhere/lockstep", NULL);
  EXPECT(nobody != NULL && lockstep_next(nobody, -1) == NULL && lockstep_is_over(nobody) && lockstep_wait(nobody) == 127);
  EXPECT(watched || strstr(lockstep_error(nobody), "cannot be started") != NULL);
  lockstep_stop(nobody);
  EXPECT(lockstep_wait(nobody) == 127); /* as often as one likes */
  lockstep_free(nobody);

  EXPECT(lockstep_call("/nowhere/lockstep", NULL, NULL, NULL) == 127);
  EXPECT(lockstep_generate(program, NULL, NULL, &error) == NULL && error != NULL);
  lockstep_free_text(error);

  const char* wrong[] = {"-f", "nowhere.yaml", NULL};
  lockstep_run* refused = lockstep_start(program, wrong);
  EXPECT(lockstep_wait(refused) == 2 && strstr(lockstep_error(refused), "does not exist") != NULL && lockstep_folder(refused) == NULL);
  lockstep_free(refused);

  const char* good[] = {"-f", "nano", "--ranks", "1", "--max-steps", "100000", "--log-interval", "1", "--name", "given-up", NULL};
  lockstep_run* given_up = lockstep_start(program, good);
  EXPECT(lockstep_next(given_up, 0) == NULL && !lockstep_is_over(given_up)); /* nothing yet is not the end */
  const char* event;
  while ((event = lockstep_next(given_up, 120)) != NULL && !lockstep_number(event, "loss", &number)) {
  }
  EXPECT(event != NULL && number != 7 && lockstep_folder(given_up) != NULL);
  lockstep_free(given_up); /* while it trains: saved, ended and waited for */
  puts("all as promised");
  return 0;
}
