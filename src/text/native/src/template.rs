//! A chat template: compiled as transformers does it, rendered from a JSON object of variables.
use crate::border::{guarded, Bytes, Failure, Numbers, View};
use crate::{marks, python_filters, python_methods};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value as Json;

const NAME: &str = "chat_template";

pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    has_marks: bool,
}

/// The reason, and the line of the template that it comes from.
fn explain(error: &Error, source: &str) -> Failure {
    let reason = error.detail().map_or_else(|| error.kind().to_string(), str::to_string);
    match error.line() {
        Some(line) => {
            let text = source.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
            let shown: String = text.chars().take(160).collect();
            format!("line {line}: {reason}\n    {}", shown.replace(marks::OPEN, "generation")).into()
        }
        None => reason.into(),
    }
}

fn raise_exception(message: Value) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("the template says: {message}")))
}

/// datetime.now().strftime(format)
fn strftime_now(format: &str) -> Result<String, Error> {
    let refused = || Error::new(ErrorKind::InvalidOperation, "strftime_now: the format cannot be used");
    let format = std::ffi::CString::new(format).map_err(|_| refused())?;
    let mut buffer = vec![0u8; 64 + 32 * format.as_bytes().len()];
    // Safety: localtime_r fills the struct that strftime then reads; strftime writes at most the buffer's length.
    let length = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut fields: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut fields).is_null() {
            return Err(refused());
        }
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), &fields)
    };
    buffer.truncate(length);
    String::from_utf8(buffer).map_err(|_| refused())
}

fn open(source: &str) -> Result<ChatTemplate, Failure> {
    // Jinja2 reads every kind of line end as \n.
    let (source, has_marks) = marks::rewrite(&source.replace("\r\n", "\n").replace('\r', "\n"));
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(python_methods::call);
    minijinja_contrib::add_to_environment(&mut environment);
    python_filters::add_to(&mut environment);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter(marks::FILTER, marks::marked);
    environment.add_template_owned(NAME, source.clone()).map_err(|error| explain(&error, &source))?;
    Ok(ChatTemplate { environment, source, has_marks })
}

/// A message's reasoning goes by three names; templates read any of the first two.
fn alias_reasoning(messages: &mut Json) {
    for message in messages.as_array_mut().into_iter().flatten().filter_map(Json::as_object_mut) {
        let names = ["reasoning_content", "thinking", "reasoning"];
        let Some(reasoning) = names.iter().filter_map(|name| message.get(*name)).find(|value| !value.is_null()).cloned() else {
            continue;
        };
        let mut aliased = serde_json::Map::new();
        aliased.insert("thinking".into(), reasoning.clone());
        aliased.extend(std::mem::take(message));
        aliased.insert("reasoning_content".into(), reasoning);
        *message = aliased;
    }
}

impl ChatTemplate {
    fn render(&self, variables: &str, answers: bool) -> Result<(String, Vec<u32>), Failure> {
        let mut context: Json = serde_json::from_str(variables)?;
        if let Some(messages) = context.get_mut("messages") {
            alias_reasoning(messages);
        }
        let context = Value::from(Serde(&context));
        let render = || self.environment.get_template(NAME)?.render(context);
        let rendered =
            if answers { marks::render_with_answers(&[&self.source, variables], render) } else { render().map(|text| (text, Vec::new())) };
        rendered.map_err(|error| explain(&error, &self.source))
    }
}

#[no_mangle]
unsafe extern "C" fn lockstep_template_open(source: View, result: *mut *mut ChatTemplate, error: *mut Bytes) -> bool {
    guarded(error, || {
        result.write(Box::into_raw(Box::new(open(source.text()?)?)));
        Ok(())
    })
}

#[no_mangle]
unsafe extern "C" fn lockstep_template_free(template: *mut ChatTemplate) {
    drop(Box::from_raw(template));
}

#[no_mangle]
unsafe extern "C" fn lockstep_template_has_marks(template: &ChatTemplate) -> bool {
    template.has_marks
}

#[no_mangle]
unsafe extern "C" fn lockstep_template_render(
    template: &ChatTemplate,
    variables: View,
    text: *mut Bytes,
    answers: *mut Numbers,
    error: *mut Bytes,
) -> bool {
    guarded(error, || {
        let (rendered, found) = template.render(variables.text()?, !answers.is_null())?;
        text.write(rendered.into_bytes().into());
        if !answers.is_null() {
            answers.write(found.into());
        }
        Ok(())
    })
}
