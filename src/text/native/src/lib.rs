//! Tokenizers, chat templates and Parquet for lockstep, behind the C interface of ../../native.h.
mod border;
mod jinja;
mod parquet;
mod template;
mod tokenizer;
mod train;
