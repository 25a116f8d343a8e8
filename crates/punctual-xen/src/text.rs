//! Text as C has it.

use core::fmt::{self, Write};

/// Zero-terminated text, cut where it is too long.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    bytes: [u8; 256],
}

impl Text {
    /// No text.
    pub const EMPTY: Text = Text { bytes: [0; 256] };

    /// The text up to the first zero; `None` if it is not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        let end = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(self.bytes.len());
        core::str::from_utf8(&self.bytes[..end]).ok()
    }

    /// Renders `text`, and cuts it where it is too long.
    pub fn of(text: impl fmt::Display) -> Text {
        let mut made = Text::EMPTY;
        // An error says that the text was cut.
        let _ = write!(made, "{text}");
        made
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let used = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(self.bytes.len());
        let mut end = text.len().min((self.bytes.len() - 1).saturating_sub(used));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes[used..used + end].copy_from_slice(&text.as_bytes()[..end]);
        if end == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
