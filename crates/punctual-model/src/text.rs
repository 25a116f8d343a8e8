//! Texts that others wrote, made fit to be shown.

use std::borrow::Cow;

/// The text with everything escaped that a terminal would obey or not show: control characters, line breaks
/// among them, and the marks that change the direction of text. A guest, another process or a file chose it.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe)
}

/// As [`printable`], but line breaks stay: for a text of several lines.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_unsafe(c))
}

fn is_unsafe(c: char) -> bool {
    // Marks of direction and of lines (Unicode s.23.2, UAX 9), and marks without a width.
    c.is_control()
        || ('\u{200b}'..='\u{200f}').contains(&c)
        || ('\u{2028}'..='\u{202e}').contains(&c)
        || ('\u{2060}'..='\u{206f}').contains(&c)
        || c == '\u{feff}'
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_nothing_else() {
        assert_eq!(printable("vCPU 0/KVM, größer"), "vCPU 0/KVM, größer");
        assert_eq!(printable("\x1b]0;title\x07\r\n\u{9b}2J"), "\\u{1b}]0;title\\u{7}\\r\\n\\u{9b}2J");
        assert_eq!(printable("a\u{202e}b\u{2066}"), "a\\u{202e}b\\u{2066}");
        assert_eq!(printable_lines("one\n\ttwo"), "one\n\\ttwo");
    }
}
