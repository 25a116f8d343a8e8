//! The syntax of xl's configuration files: assignments of strings, numbers and lists
//! (`tools/libs/util/libxlu_cfg_l.l` and `libxlu_cfg_y.y`).

use crate::file::source::Place;
use crate::import::input::{Input, Reported, shorten};

/// Lists in lists are at most this deep; xl reads two levels.
const DEPTH_MAX: usize = 8;

/// `key = value`.
pub(super) struct Assignment {
    pub(super) key: String,
    pub(super) value: Value,
    /// Of the key.
    pub(super) place: Place,
}

/// What is assigned.
pub(super) enum Value {
    /// A string or number, without quotes.
    Atom(String, Place),
    List(Vec<Value>),
}

/// Does the text begin with an assignment?
pub(super) fn is_configuration(text: &str) -> bool {
    let significant = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let Some(line) = text.lines().map(str::trim).find(significant) else { return false };
    let rest = line.trim_start_matches(is_key);
    let rest = rest.trim_start();
    line.starts_with(|c: char| c.is_ascii_lowercase()) && (rest.starts_with('=') || rest.starts_with("+="))
}

fn is_key(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.'
}

/// The assignments of a file in their order.
pub(super) fn parse(input: &mut Input, file: usize) -> Result<Vec<Assignment>, Reported> {
    let text = input.text(file).to_string();
    let mut parser = Parser { input, file, text: &text, at: 0 };
    let mut assignments = Vec::new();
    loop {
        parser.skip(true);
        if parser.rest().starts_with(';') {
            parser.at += 1;
            continue;
        }
        if parser.rest().is_empty() {
            return Ok(assignments);
        }
        assignments.push(parser.assignment()?);
    }
}

struct Parser<'a> {
    input: &'a mut Input,
    file: usize,
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips blanks and comments, and line ends where a statement does not end at them.
    fn skip(&mut self, over_lines: bool) {
        loop {
            let rest = self.rest();
            let is_blank = |c: char| c == ' ' || c == '\t' || c == '\r' || (over_lines && c == '\n');
            let blanks = rest.len() - rest.trim_start_matches(is_blank).len();
            let is_comment = rest[blanks..].starts_with('#');
            let line = rest[blanks..].find('\n').unwrap_or(rest.len() - blanks);
            let comment = if is_comment { line } else { 0 };
            self.at += blanks + comment;
            if blanks + comment == 0 {
                return;
            }
        }
    }

    fn error<T>(&mut self, message: &str, expected: &str) -> Result<T, Reported> {
        let line = self.rest().split('\n').next().unwrap_or_default();
        let place = self.input.place(self.file, self.at..self.at + line.len());
        self.input.error(place, message, expected);
        Err(Reported)
    }

    fn assignment(&mut self) -> Result<Assignment, Reported> {
        const EXPECTED: &str = "expected for example vcpus = 2, one assignment a line";
        let rest = self.rest();
        let key = &rest[..rest.len() - rest.trim_start_matches(is_key).len()];
        let place = self.input.place(self.file, self.at..self.at + key.len());
        if key.is_empty() {
            let line = rest.split('\n').next().unwrap_or_default();
            return self.error(&format!("no assignment: {}", shorten(line)), EXPECTED);
        }
        self.at += key.len();
        self.skip(false);
        let sign = if self.rest().starts_with("+=") { "+=" } else { "=" };
        if !self.rest().starts_with(sign) {
            return self.error(&format!("no value for {}", shorten(key)), EXPECTED);
        }
        self.at += sign.len();
        self.skip(false);
        let value = self.value(0)?;
        self.skip(false);
        if !(self.rest().is_empty() || self.rest().starts_with(['\n', ';'])) {
            return self.error("text behind a value", "expected the end of the line");
        }
        Ok(Assignment { key: key.into(), value, place })
    }

    fn value(&mut self, depth: usize) -> Result<Value, Reported> {
        match self.rest().chars().next() {
            Some('[') if depth < DEPTH_MAX => self.list(depth),
            Some(quote @ ('"' | '\'')) => self.string(quote),
            Some(digit) if digit.is_ascii_digit() => {
                let rest = self.rest();
                let is_number = |c: char| c.is_ascii_hexdigit() || c == 'x';
                let number = &rest[..rest.len() - rest.trim_start_matches(is_number).len()];
                let place = self.input.place(self.file, self.at..self.at + number.len());
                self.at += number.len();
                Ok(Value::Atom(number.into(), place))
            }
            _ => self.error("no value", "expected a number, a string in quotes or a list in brackets"),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Reported> {
        let mut values = Vec::new();
        self.at += 1;
        loop {
            self.skip(true);
            if self.rest().starts_with(']') {
                self.at += 1;
                return Ok(Value::List(values));
            }
            values.push(self.value(depth + 1)?);
            self.skip(true);
            match self.rest().chars().next() {
                Some(',') => self.at += 1,
                Some(']') => {}
                _ => return self.error("a list that does not end", "expected , or ]"),
            }
        }
    }

    fn string(&mut self, quote: char) -> Result<Value, Reported> {
        let start = self.at;
        let mut text = String::new();
        let mut characters = self.rest().char_indices().skip(1);
        while let Some((at, c)) = characters.next() {
            match c {
                c if c == quote => {
                    self.at = start + at + 1;
                    let place = self.input.place(self.file, start..self.at);
                    return Ok(Value::Atom(text, place));
                }
                '\n' => break,
                '\\' => text.extend(characters.next().map(|(_, escaped)| escaped)),
                c => text.push(c),
            }
        }
        self.error("a string that does not end", "expected the quote at its end")
    }
}

/// A number as strtol of C reads it: hexadecimal with 0x, octal with 0.
pub(super) fn number(text: &str) -> Option<i64> {
    match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(hex), _) => i64::from_str_radix(hex, 16).ok(),
        (None, Some(octal)) if !octal.is_empty() => i64::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_begins_with_an_assignment() {
        for text in ["name = 'a'\n", "# comment\n\n  vcpus=2", "extra += \"x\""] {
            assert!(is_configuration(text), "{text}");
        }
        for text in ["Name ID Weight Cap\n", "Cpupool rt: sched=RTDS", "[root@h ~]# xl list", "", "import os"]
        {
            assert!(!is_configuration(text), "{text}");
        }
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!((number("16"), number("0x10"), number("010")), (Some(16), Some(16), Some(8)));
        assert_eq!((number("0"), number("08"), number("x")), (Some(0), None, None));
    }
}
