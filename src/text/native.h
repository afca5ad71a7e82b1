// The border to the Rust crate in native/: handles, borrowed views, and buffers that the crate owns and takes back. Only src/text includes
// it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lockstep_tokenizer lockstep_tokenizer;
typedef struct lockstep_template lockstep_template;

typedef struct {  // borrowed for the time of a call; text is UTF-8 without a zero at its end
  const char* data;
  size_t size;
} lockstep_view;

typedef struct {  // made by the crate; give it back with lockstep_bytes_free
  char* data;
  size_t size, capacity;
} lockstep_bytes;

typedef struct {  // made by the crate; give it back with lockstep_numbers_free
  uint32_t* data;
  size_t size, capacity;
} lockstep_numbers;

void lockstep_bytes_free(lockstep_bytes bytes);
void lockstep_numbers_free(lockstep_numbers numbers);

// A call that may fail returns false and leaves the reason in `error`; then its other results are untouched. Handles may be used by any
// thread.
bool lockstep_tokenizer_open(lockstep_view json, lockstep_tokenizer** tokenizer, lockstep_bytes* error);
void lockstep_tokenizer_free(lockstep_tokenizer* tokenizer);
// `spans` may be null; else it receives begin and end, in bytes of the text, of every token.
bool lockstep_tokenizer_encode(const lockstep_tokenizer* tokenizer, lockstep_view text, bool add_special, lockstep_numbers* tokens,
                               lockstep_numbers* spans, lockstep_bytes* error);
bool lockstep_tokenizer_decode(const lockstep_tokenizer* tokenizer, const uint32_t* tokens, size_t count, bool skip_special,
                               lockstep_bytes* text, lockstep_bytes* error);
// {"size": one more than the largest number, "added": [{"id":, "content":, "special":}, ...]}
bool lockstep_tokenizer_describe(const lockstep_tokenizer* tokenizer, lockstep_bytes* json, lockstep_bytes* error);
bool lockstep_tokenizer_find(const lockstep_tokenizer* tokenizer, lockstep_view token, uint32_t* number);
bool lockstep_tokenizer_token(const lockstep_tokenizer* tokenizer, uint32_t number, lockstep_bytes* token);

// Hands out the next text to learn from, valid until the next call; false at the end.
typedef bool (*lockstep_next_text)(void* state, lockstep_view* text);
// options: {"vocab_size":, "min_frequency":, "special": [...]}. Gives a tokenizer.json. Only one thread at a time calls `next`.
bool lockstep_train_bpe(lockstep_view options, lockstep_next_text next, void* state, lockstep_bytes* json, lockstep_bytes* error);

// Rows of a Parquet file, front to back. Borrows the file's bytes until it is freed; one thread at a time.
typedef struct lockstep_parquet lockstep_parquet;
bool lockstep_parquet_open(lockstep_view file, lockstep_parquet** rows, uint64_t* count, lockstep_bytes* error);
void lockstep_parquet_free(lockstep_parquet* rows);
// Up to `most` rows as lines of JSON, fewer once these are `enough` bytes long; nothing at the end.
bool lockstep_parquet_read(lockstep_parquet* rows, uint64_t most, size_t enough, lockstep_bytes* lines, lockstep_bytes* error);

bool lockstep_template_open(lockstep_view source, lockstep_template** chat_template, lockstep_bytes* error);
void lockstep_template_free(lockstep_template* chat_template);
bool lockstep_template_has_marks(const lockstep_template* chat_template);  // {% generation %}
// variables: a JSON object. `marks` receives begin and end, in bytes, of each {% generation %} block; `turns` the number of a message,
// begin and end for each part that was written while the template was at that message; `said_none` how often a null became the word None.
bool lockstep_template_render(const lockstep_template* chat_template, lockstep_view variables, lockstep_bytes* text,
                              lockstep_numbers* marks, lockstep_numbers* turns, uint32_t* said_none, lockstep_bytes* error);

#ifdef __cplusplus
}
#endif
