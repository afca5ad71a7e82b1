//! Tokenizers and chat templates for lockstep, behind the C interface of ../../native.h.
mod border;
mod marks;
mod python_filters;
mod python_json;
mod python_methods;
mod template;
mod tokenizer;
mod train;
