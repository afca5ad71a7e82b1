//! A tokenizer.json: text to numbers and back.
use crate::border::{guarded, Bytes, Failure, Numbers, View};
use tokenizers::Tokenizer;

/// Truncation and padding that a tokenizer.json may carry are dropped: how long a sample is, is for the run to say.
fn open(json: &[u8]) -> Result<Tokenizer, Failure> {
    let mut tokenizer = Tokenizer::from_bytes(json)?;
    tokenizer.with_truncation(None)?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

fn describe(tokenizer: &Tokenizer) -> String {
    let largest = tokenizer.get_vocab(true).into_values().max();
    let mut added: Vec<_> = tokenizer.get_added_tokens_decoder().into_iter().collect();
    added.sort_by_key(|(id, _)| *id);
    let added: Vec<_> =
        added.iter().map(|(id, token)| serde_json::json!({"id": id, "content": token.content, "special": token.special})).collect();
    serde_json::json!({"size": largest.map_or(0, |id| u64::from(id) + 1), "added": added}).to_string()
}

#[no_mangle]
unsafe extern "C" fn lockstep_tokenizer_open(json: View, result: *mut *mut Tokenizer, error: *mut Bytes) -> bool {
    guarded(error, || {
        result.write(Box::into_raw(Box::new(open(json.bytes())?)));
        Ok(())
    })
}

#[no_mangle]
unsafe extern "C" fn lockstep_tokenizer_free(tokenizer: *mut Tokenizer) {
    drop(Box::from_raw(tokenizer));
}

#[no_mangle]
unsafe extern "C" fn lockstep_tokenizer_encode(
    tokenizer: &Tokenizer,
    text: View,
    add_special: bool,
    tokens: *mut Numbers,
    spans: *mut Numbers,
    error: *mut Bytes,
) -> bool {
    guarded(error, || {
        let text = text.text()?;
        let encoding = if spans.is_null() { tokenizer.encode_fast(text, add_special)? } else { tokenizer.encode(text, add_special)? };
        tokens.write(encoding.get_ids().to_vec().into());
        if !spans.is_null() {
            let pairs = encoding.get_offsets().iter().flat_map(|&(begin, end)| [begin as u32, end as u32]);
            spans.write(pairs.collect::<Vec<u32>>().into());
        }
        Ok(())
    })
}

#[no_mangle]
unsafe extern "C" fn lockstep_tokenizer_decode(
    tokenizer: &Tokenizer,
    tokens: *const u32,
    count: usize,
    skip_special: bool,
    text: *mut Bytes,
    error: *mut Bytes,
) -> bool {
    guarded(error, || {
        let tokens = if count == 0 { &[] } else { std::slice::from_raw_parts(tokens, count) };
        text.write(tokenizer.decode(tokens, skip_special)?.into_bytes().into());
        Ok(())
    })
}

#[no_mangle]
unsafe extern "C" fn lockstep_tokenizer_describe(tokenizer: &Tokenizer, json: *mut Bytes, error: *mut Bytes) -> bool {
    guarded(error, || {
        json.write(describe(tokenizer).into_bytes().into());
        Ok(())
    })
}

#[no_mangle]
unsafe extern "C" fn lockstep_tokenizer_find(tokenizer: &Tokenizer, token: View, number: *mut u32) -> bool {
    match token.text().ok().and_then(|token| tokenizer.token_to_id(token)) {
        Some(id) => {
            number.write(id);
            true
        }
        None => false,
    }
}

#[no_mangle]
unsafe extern "C" fn lockstep_tokenizer_token(tokenizer: &Tokenizer, number: u32, token: *mut Bytes) -> bool {
    match tokenizer.id_to_token(number) {
        Some(text) => {
            token.write(text.into_bytes().into());
            true
        }
        None => false,
    }
}
