//! The JSON schemas of the host file and the fleet file, from the key tables that the parser reads and the
//! registry of policies.

use punctual_net::registry::{disciplines, find as find_discipline};
use punctual_sched::registry::{self, OptionValue, ParamDefault, ParamInfo, ParamKind};
use serde_json::{Map, Value, json};

use super::fleet::keys::FLEET;
use super::host::keys::{COST, ROOT};
use super::key::{KeyInfo, Kind, OptionOwner, OptionTables, TableInfo};
use super::limits::STEPS_MAX;
use super::quantity;

/// JSON Schema (draft 7, which TOML editors understand) of the host file.
pub fn schema() -> Value {
    document(&ROOT, "Punctual host file")
}

/// The same of the fleet file.
pub fn fleet_schema() -> Value {
    document(&FLEET, "Punctual fleet file")
}

fn document(info: &'static TableInfo, title: &str) -> Value {
    let mut definitions = Map::new();
    let mut root = table(info, &mut definitions);
    for table in [OptionTables::Policies, OptionTables::Disciplines] {
        for of in table.all() {
            definitions.insert(options_name(of), options(of, None));
        }
    }
    root["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    root["title"] = json!(title);
    root["definitions"] = Value::Object(definitions);
    root
}

fn table(info: &'static TableInfo, definitions: &mut Map<String, Value>) -> Value {
    let mut properties = Map::new();
    for key in info.all() {
        properties.insert(key.name.into(), property(key, definitions));
    }
    for of in info.options.all() {
        properties.insert(of.name.into(), json!({ "$ref": reference(&options_name(of)) }));
    }
    let required: Vec<&str> = info.all().filter(|k| k.required).map(|k| k.name).collect();
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "required": required,
    })
}

fn property(key: &'static KeyInfo, definitions: &mut Map<String, Value>) -> Value {
    let mut schema = kind(key.kind, definitions);
    let default = key.default.map(|text| (text, literal(key.kind, text)));
    let description = match &default {
        Some((text, None)) => format!("{} Default: {text}.", key.help),
        _ => key.help.to_string(),
    };
    schema["description"] = json!(description);
    if let Some((_, Some(value))) = default {
        schema["default"] = value;
    }
    schema
}

/// A default as a value of the file; `None` when it is described in words.
pub(super) fn literal(kind: Kind, text: &str) -> Option<Value> {
    match kind {
        Kind::Duration { .. } => quantity::duration(text).is_ok().then(|| json!(text)),
        Kind::Period => quantity::period(text).is_ok().then(|| json!(text)),
        Kind::Count { .. } | Kind::Seed => text.parse::<u64>().ok().map(|n| json!(n)),
        Kind::Integer { .. } => text.parse::<i64>().ok().map(|n| json!(n)),
        Kind::VmNetwork => Some(json!(text)),
        Kind::Flag => text.parse::<bool>().ok().map(|b| json!(b)),
        Kind::Word(words) => words.contains(&text).then(|| json!(text)),
        Kind::Policy | Kind::Guest => registry::find(text).map(|_| json!(text)),
        Kind::Discipline => find_discipline(text).map(|_| json!(text)),
        Kind::Bandwidth => quantity::bandwidth(text).is_ok().then(|| json!(text)),
        _ => None,
    }
}

fn kind(kind: Kind, definitions: &mut Map<String, Value>) -> Value {
    let name = json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$" });
    match kind {
        Kind::Text | Kind::Line => json!({ "type": "string", "minLength": 1 }),
        Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Environment => json!({
            "type": "object",
            "propertyNames": { "pattern": "^[^=]+$" },
            "additionalProperties": { "type": "string" },
        }),
        Kind::VmNetwork => json!({ "type": "string", "pattern": "^(none|user|tap:[A-Za-z0-9_.-]{1,15})$" }),
        Kind::Seed => json!({ "type": "integer", "minimum": 0 }),
        Kind::Duration { .. } => duration(),
        Kind::Period => period(),
        Kind::Count { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Percent { .. } => json!({ "type": "string", "pattern": r"^\s*\d[\d_]*(\.[\d_]*\d)?\s*%\s*$" }),
        Kind::Word(words) => json!({ "type": "string", "enum": words }),
        Kind::Policy => policy_name(),
        Kind::Guest => guest(),
        Kind::NameOf(_) | Kind::Endpoint => name,
        Kind::Discipline => discipline_name(),
        Kind::Bandwidth => json!({ "type": "string", "pattern": quantity::BANDWIDTH_PATTERN }),
        Kind::TaskOf => task_of(),
        Kind::TasksOf => json!({
            "type": "array", "items": task_of(), "minItems": 2, "maxItems": STEPS_MAX, "uniqueItems": true,
        }),
        Kind::Numbers => numbers(),
        Kind::NumbersOrTable(info) => json!({ "anyOf": [numbers(), define(info, definitions)] }),
        Kind::Threads => json!({
            "type": "array", "items": { "type": "integer", "minimum": 1 }, "minItems": 1, "uniqueItems": true,
        }),
        Kind::Cost => {
            let range = define(&COST, definitions);
            json!({ "anyOf": [duration(), range] })
        }
        // A reference hides what stands beside it, such as the description, unless it is wrapped.
        Kind::Table(info) => json!({ "allOf": [define(info, definitions)] }),
        Kind::WordOrTable(words, info) => {
            json!({ "anyOf": [{ "type": "string", "enum": words }, define(info, definitions)] })
        }
        Kind::Named(info) => json!({
            "type": "object",
            "propertyNames": { "pattern": name["pattern"] },
            "additionalProperties": define(info, definitions),
        }),
        Kind::Numbered(info) => json!({
            "type": "object",
            "propertyNames": { "pattern": "^(0|[1-9][0-9]{0,3})$" },
            "additionalProperties": define(info, definitions),
        }),
        Kind::Tables(info) | Kind::OneOfEach(info) => {
            json!({ "type": "array", "items": define(info, definitions) })
        }
    }
}

/// A reference to the definition of a table, made when it is first used.
fn define(info: &'static TableInfo, definitions: &mut Map<String, Value>) -> Value {
    let name = info.title.replace(['[', ']'], "");
    if !definitions.contains_key(&name) {
        let schema = table(info, definitions);
        definitions.insert(name.clone(), schema);
    }
    json!({ "$ref": reference(&name) })
}

fn reference(name: &str) -> String {
    format!("#/definitions/{}", name.replace(' ', "%20").replace('{', "%7B").replace('}', "%7D"))
}

fn options_name(of: OptionOwner) -> String {
    format!("options of {}", of.name)
}

fn numbers() -> Value {
    json!({
        "type": "array", "items": { "type": "integer", "minimum": 0 }, "minItems": 1, "uniqueItems": true,
    })
}

fn duration() -> Value {
    with_unit(&quantity::UNITS)
}

/// A duration or a frequency.
fn period() -> Value {
    with_unit(&[&quantity::UNITS[..], &quantity::FREQUENCIES].concat())
}

fn with_unit(units: &[(&str, u64)]) -> Value {
    let units: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    json!({ "type": "string", "pattern": format!(r"^\s*\d[\d_]*(\.[\d_]*\d)?\s*({})\s*$", units.join("|")) })
}

fn policy_name() -> Value {
    let names: Vec<&str> = registry::policies().iter().map(|p| p.name).collect();
    let docs: Vec<&str> = registry::policies().iter().map(|p| p.summary).collect();
    json!({ "type": "string", "enum": names, "x-taplo": { "docs": { "enumValues": docs } } })
}

fn discipline_name() -> Value {
    let names: Vec<&str> = disciplines().iter().map(|d| d.name).collect();
    let docs: Vec<&str> = disciplines().iter().map(|d| d.summary).collect();
    json!({ "type": "string", "enum": names, "x-taplo": { "docs": { "enumValues": docs } } })
}

fn task_of() -> Value {
    json!({ "type": "string", "pattern": r"^[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{1,64}$" })
}

fn guest() -> Value {
    let tables = registry::policies().iter().map(|p| options(p.into(), Some(p.name)));
    json!({ "anyOf": std::iter::once(policy_name()).chain(tables).collect::<Vec<_>>() })
}

/// A table of a policy's or discipline's options, with its own name as `policy` if given.
fn options(of: OptionOwner, named: Option<&str>) -> Value {
    let mut properties = Map::new();
    for option in of.options {
        properties.insert(option.name.into(), option_schema(option));
    }
    if let Some(name) = named {
        properties.insert("policy".into(), json!({ "const": name, "description": of.summary }));
    }
    json!({
        "type": "object",
        "description": format!("Options of {}: {}", of.name, of.summary),
        "additionalProperties": false,
        "properties": properties,
        "required": named.map(|_| "policy").into_iter().collect::<Vec<_>>(),
    })
}

fn option_schema(option: &ParamInfo) -> Value {
    let mut schema = match option.kind {
        ParamKind::Duration => duration(),
        ParamKind::DurationOr(words) => json!({ "anyOf": [duration(), { "type": "string", "enum": words }] }),
        ParamKind::Count { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        ParamKind::Flag => json!({ "type": "boolean" }),
        ParamKind::Choice(words) => json!({ "type": "string", "enum": words }),
    };
    schema["description"] = json!(option.help);
    match option.default {
        Some(ParamDefault::Words(words)) => {
            schema["description"] = json!(format!("{}; default: {words}", option.help));
        }
        Some(ParamDefault::Value(OptionValue::Count(count))) => schema["default"] = json!(count),
        Some(ParamDefault::Value(OptionValue::Flag(flag))) => schema["default"] = json!(flag),
        Some(ParamDefault::Value(other)) => schema["default"] = json!(other.to_string()),
        None => {}
    }
    schema
}
