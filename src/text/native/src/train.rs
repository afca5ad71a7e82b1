//! Learns a byte-level BPE vocabulary from texts.
use crate::border::{guarded, Bytes, Failure, View};
use std::collections::HashSet;
use std::os::raw::c_void;
use tokenizers::models::bpe::{BpeTrainer, BPE};
use tokenizers::models::TrainerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

type NextText = unsafe extern "C" fn(*mut c_void, *mut View) -> bool;

/// The texts that C++ hands out one by one. The trainer pulls them under a lock, so only one thread calls at a time.
struct Texts {
    next: NextText,
    state: *mut c_void,
}

unsafe impl Send for Texts {}

impl Iterator for Texts {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut view = View::EMPTY;
        // Safety: C++ keeps the text until the next call.
        unsafe { (self.next)(self.state, &mut view).then(|| String::from_utf8_lossy(view.bytes()).into_owned()) }
    }
}

fn train(options: &serde_json::Value, texts: Texts) -> Result<String, Failure> {
    let number = |name: &str| options[name].as_u64().ok_or_else(|| format!("{name} is missing"));
    let special = options["special"].as_array().ok_or("special is missing")?;
    let special = special.iter().filter_map(|token| token.as_str()).map(|token| AddedToken::from(token, true)).collect();
    let alphabet: HashSet<char> = ByteLevel::alphabet().into_iter().collect();
    let mut trainer = TrainerWrapper::from(
        BpeTrainer::builder()
            .vocab_size(number("vocab_size")? as usize)
            .min_frequency(number("min_frequency")?)
            .special_tokens(special)
            .initial_alphabet(alphabet)
            .show_progress(false)
            .build(),
    );
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    tokenizer.with_post_processor(Some(ByteLevel::new(true, false, true)));
    tokenizer.train(&mut trainer, texts)?;
    Ok(tokenizer.to_string(true)?)
}

#[no_mangle]
unsafe extern "C" fn lockstep_train_bpe(options: View, next: NextText, state: *mut c_void, json: *mut Bytes, error: *mut Bytes) -> bool {
    guarded(error, || {
        let options = serde_json::from_slice(options.bytes())?;
        json.write(train(&options, Texts { next, state })?.into_bytes().into());
        Ok(())
    })
}
