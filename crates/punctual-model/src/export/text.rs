//! Pieces of text that several targets write.

use std::fmt::Write;

use super::loss::Loss;
use crate::host::Host;
use crate::text::printable;

/// Processor numbers, ascending, as Linux, libvirt and xl write them: `0-2,5`. Why our own: it is one loop.
pub(super) fn cpu_list(processors: &[usize]) -> String {
    let mut out = String::new();
    let mut rest = processors;
    while let Some(&first) = rest.first() {
        let len = rest.iter().zip(first..).take_while(|(have, want)| *have == want).count();
        let comma = if out.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = match len {
            1 => write!(out, "{comma}{first}"),
            _ => write!(out, "{comma}{first}-{}", first + len - 1),
        };
        rest = &rest[len..];
    }
    out
}

/// A name as an argument of a command; one that starts with `-` must not pass for an option.
pub(super) fn argument(name: &str) -> String {
    if name.starts_with('-') { format!("-- {name}") } else { name.to_string() }
}

/// Any text as one word for a shell.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_string();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Comment lines of shell scripts and configuration files: what the file is, and what is not in it.
pub(super) fn header<'a>(
    host: &Host,
    what: &str,
    usage: &[String],
    losses: impl Iterator<Item = &'a Loss>,
) -> String {
    // A line break would end the comment.
    let name = printable(&host.name);
    let mut out = format!("# {what}, from the host file \"{name}\" by punctual export.\n");
    for line in usage {
        out += format!("# {line}").trim_end();
        out.push('\n');
    }
    for loss in losses {
        out += &format!("# NOT AS IN THE HOST FILE: {}\n", printable(&sentence(loss)));
    }
    out
}

/// A loss in one line.
pub(super) fn sentence(loss: &Loss) -> String {
    format!("{}: {}: {}", loss.item, loss.field, loss.why)
}

/// Text for an attribute or between tags.
pub(super) fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&apos;")
}

/// Text for an XML comment, which must not contain two hyphens in a row or end with one.
pub(super) fn xml_comment(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c == '-' && out.ends_with('-') {
            out.push(' ');
        }
        out.push(c);
    }
    format!("<!-- {out} -->")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_processors_are_a_range() {
        assert_eq!(cpu_list(&[0, 1, 2, 5]), "0-2,5");
        assert_eq!(cpu_list(&[3, 4]), "3-4");
        assert_eq!(cpu_list(&[1]), "1");
        assert_eq!(cpu_list(&[]), "");
    }

    #[test]
    fn any_text_is_one_word() {
        assert_eq!(quoted("-accel"), "-accel");
        assert_eq!(quoted("it's $x"), r"'it'\''s $x'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_host_files_name_stays_in_the_comment_of_a_script() {
        let text = "name = \"x $(touch y) `z`\"\n[machine]\nprocessors = 1\n[pool.p]\nprocessors = [0]\n\
                    policy = \"rtds\"\n";
        let mut host =
            crate::file::parse(text, "t.toml", &Default::default()).unwrap_or_else(|e| panic!("{e}"));
        // The parser refuses such a name; a host in code may have it.
        host.name = "x\ntouch /tmp/pwned #".into();
        let header = header(&host, "A script", &[], std::iter::empty());
        assert_eq!(header, "# A script, from the host file \"x\\ntouch /tmp/pwned #\" by punctual export.\n");
        assert!(header.lines().all(|line| line.starts_with('#')));
    }

    #[test]
    fn comments_cannot_end_early() {
        assert_eq!(xml_comment("a--b --> c"), "<!-- a- -b - -> c -->");
        assert!(roxmltree::Document::parse(&format!("<a>{}</a>", xml_comment("--->-- -"))).is_ok());
    }
}
