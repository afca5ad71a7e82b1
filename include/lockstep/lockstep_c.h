/* Lockstep from C, and from whatever can call C. Every run is a process of its own: this library starts the program `lockstep`, reads what
   it says and steers it. It links no LibTorch, keeps no state between calls and starts no threads; an object is for one thread at a time.

   `program` is the path of `lockstep`; NULL means LOCKSTEP_PROGRAM from the environment, or the one on PATH. Lists of texts end with NULL.
   Texts that a call gives out belong to the object that they came from and live until its next call, unless it says that they are to be
   freed. NULL instead of a run is a run that is over: nothing happens to it, and its exit code is 70. */
#ifndef LOCKSTEP_LOCKSTEP_C_H
#define LOCKSTEP_LOCKSTEP_C_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lockstep_run lockstep_run;

const char* lockstep_version(void);

/* Counts up when a program that was compiled against an older header would misread this library: compare it with lockstep_abi(). */
#define LOCKSTEP_ABI 1
int lockstep_abi(void);

/* Starts `lockstep train` with these arguments and comes back at once. NULL only where there is no memory: a program that cannot be started
   is a run that is over, with its error. */
lockstep_run* lockstep_start(const char* program, const char* const* arguments);

/* The next event, one JSON object: the plan, a step with its loss, an evaluation, a checkpoint, the end. Waits up to timeout_s seconds,
   forever where that is negative. NULL: none came in time, or the run is over. */
const char* lockstep_next(lockstep_run* run, double timeout_s);
int lockstep_is_over(const lockstep_run* run);

/* Where everything of the run lies; NULL until it is planned. */
const char* lockstep_folder(const lockstep_run* run);
/* What the program wrote to standard error: where a run fails, the report with its fix. */
const char* lockstep_error(lockstep_run* run);

/* The first time the ranks finish their step, save and end; the second time they end at once. */
void lockstep_stop(lockstep_run* run);
/* Reads what is still to come and gives the exit code: 0, 2 settings, 3 machine, 4 data, 5 checkpoint, 6 a failed run, 70 a bug. */
int lockstep_wait(lockstep_run* run);
/* Stops a run that still trains, and waits for it. Once a run, as with free(); NULL is passed over. */
void lockstep_free(lockstep_run* run);

/* A number of an event, such as "loss": 1 where it has one. */
int lockstep_number(const char* event, const char* name, double* value);
/* A text of an event, such as "status"; NULL where it has none. To be freed with lockstep_free_text. */
char* lockstep_text(const char* event, const char* name);

/* Any other command, such as {"ask", folder, "save", "--json", NULL}: waits for it and gives its exit code. What it wrote to standard
   output and error is to be freed; either may be NULL for what is of no interest. */
int lockstep_call(const char* program, const char* const* arguments, char** output, char** error);

/* What a model writes after each prompt: a list to be freed with lockstep_free_texts. arguments: those of `lockstep generate`, such as
   {"--model", folder, "--max-tokens", "64", NULL}. NULL where it fails; then *error says why and is to be freed. */
char** lockstep_generate(const char* program, const char* const* arguments, const char* const* prompts, char** error);

void lockstep_free_text(char* text);
void lockstep_free_texts(char** texts);

#ifdef __cplusplus
}
#endif

#endif
