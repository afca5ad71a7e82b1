//! A chat template: compiled as transformers does it, rendered from a JSON object of variables.
use crate::border::{guarded, Bytes, Failure, Numbers, View};
use crate::jinja::{Fault, Rendered, Template};
use serde_json::Value as Json;

pub struct ChatTemplate {
    compiled: Template,
    source: String,
}

/// The reason, and the line of the template that it comes from.
fn explain(fault: &Fault, source: &str) -> Failure {
    if fault.line == 0 {
        return fault.reason.clone().into();
    }
    let text = source.lines().nth(fault.line as usize - 1).unwrap_or_default().trim();
    let shown: String = text.chars().take(160).collect();
    format!("line {}: {}\n    {shown}", fault.line, fault.reason).into()
}

fn open(source: &str) -> Result<ChatTemplate, Failure> {
    // Jinja2 reads every kind of line end as \n.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let compiled = Template::compile(&source).map_err(|fault| explain(&fault, &source))?;
    Ok(ChatTemplate { compiled, source })
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
    fn render(&self, variables: &str) -> Result<Rendered, Failure> {
        let mut context: Json = serde_json::from_str(variables)?;
        if let Some(messages) = context.get_mut("messages") {
            alias_reasoning(messages);
        }
        self.compiled.render(context).map_err(|fault| explain(&fault, &self.source))
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
    template.compiled.has_marks()
}

#[no_mangle]
unsafe extern "C" fn lockstep_template_render(
    template: &ChatTemplate,
    variables: View,
    text: *mut Bytes,
    marks: *mut Numbers,
    turns: *mut Numbers,
    said_none: *mut u32,
    error: *mut Bytes,
) -> bool {
    guarded(error, || {
        let rendered = template.render(variables.text()?)?;
        text.write(rendered.text.into_bytes().into());
        marks.write(rendered.marks.iter().flat_map(|&(begin, end)| [begin as u32, end as u32]).collect::<Vec<_>>().into());
        let turns_found = rendered.turns.iter().flat_map(|turn| [turn.message, turn.begin as u32, turn.end as u32]);
        turns.write(turns_found.collect::<Vec<_>>().into());
        said_none.write(rendered.said_none);
        Ok(())
    })
}
