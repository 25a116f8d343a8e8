//! The SHA-256 of JSON, whatever its white space and the order of its keys: that of its text without white
//! space, keys sorted. `jq -cjS 'del(.sha256)' FILE | sha256sum` prints the same.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The key of the hash, which is not part of what is hashed.
pub(crate) const KEY: &str = "sha256";

/// The hash in hexadecimal digits.
pub(crate) fn of(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A reader of JSON limits how deep it nests, so this does not overflow the stack.
fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            for (index, (key, item)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                *out += &Value::from(key.as_str()).to_string();
                out.push(':');
                write(item, out);
            }
            out.push('}');
        }
        scalar => *out += &scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn white_space_and_order_do_not_count_and_everything_else_does() {
        let of = |text: &str| super::of(&serde_json::from_str(text).expect("JSON"));
        assert_eq!(of(r#"{"b": [1, "x"], "a": null}"#), of(r#"{"a":null,"b":[1,"x"]}"#));
        assert_ne!(of(r#"{"a":[1,2]}"#), of(r#"{"a":[2,1]}"#));
        // printf '{"a":null,"b":[1,"x"]}' | sha256sum
        assert_eq!(
            of(r#"{"b": [1, "x"], "a": null}"#),
            "c22cb7b0353770e2b38094af641143ebf008ddf2d1f2dedb9d875996fcf245fa"
        );
    }
}
