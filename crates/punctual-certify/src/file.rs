//! The file of a certificate.
//!
//! It is JSON with a SHA-256 of everything else in it (`digest.rs`). The hash shows that a file was changed
//! by accident or by hand. It is no signature: who can change the file can compute another hash.

use crate::certificate::{Certificate, Verdict};
use crate::{digest, verdict};

/// What `format` says.
const FORMAT: &str = "punctual-certificate";
/// The version of the form.
const VERSION: u32 = 1;

/// Why a text is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not JSON.
    #[error("{0} is no JSON: {1}")]
    Json(String, #[source] serde_json::Error),
    /// It is something else.
    #[error("{0} is no certificate: `format` is not \"{FORMAT}\"")]
    Format(String),
    /// Another version wrote it.
    #[error("{0} is a certificate of version {1}; this program reads version {VERSION}")]
    Version(String, u64),
    /// It has no hash.
    #[error("{0} has no `sha256`")]
    NoDigest(String),
    /// It was changed after it was written.
    #[error("{name} was changed after it was written: its SHA-256 is {is}, the file says {says}")]
    Changed {
        /// The file.
        name: String,
        /// The hash of what is in it.
        is: String,
        /// The hash in it.
        says: String,
    },
    /// A field is wrong although the hash is right.
    #[error("{0} is no certificate of this program: {1}")]
    Field(String, #[source] serde_json::Error),
    /// The verdict does not follow from the measurements and limits.
    #[error("{0} has a verdict that does not follow from its measurements and limits")]
    Verdict(String),
}

impl Certificate {
    /// The head of a certificate of this program.
    pub(crate) fn head() -> (String, u32, String) {
        (FORMAT.into(), VERSION, env!("CARGO_PKG_VERSION").into())
    }

    /// The SHA-256 of everything in it, in hexadecimal digits.
    pub fn digest(&self) -> String {
        digest::of(&self.value())
    }

    fn value(&self) -> serde_json::Value {
        // Nothing in it can fail: keys are text, and numbers are whole.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The file: JSON with its hash.
    pub fn to_json(&self) -> String {
        let mut value = self.value();
        let digest = digest::of(&value);
        if let serde_json::Value::Object(fields) = &mut value {
            fields.insert(digest::KEY.into(), digest.into());
        }
        serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
    }

    /// Reads a file and checks its hash; `name` is what errors call it.
    ///
    /// # Errors
    /// It is no certificate, it was changed, or its verdict does not follow from what was measured.
    pub fn from_json(text: &str, name: &str) -> Result<Certificate, FileError> {
        let name = || name.to_owned();
        let mut value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| FileError::Json(name(), error))?;
        if value.get("format").and_then(serde_json::Value::as_str) != Some(FORMAT) {
            return Err(FileError::Format(name()));
        }
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            version => return Err(FileError::Version(name(), version.unwrap_or(0))),
        }
        let says = value.as_object_mut().and_then(|fields| fields.remove(digest::KEY));
        let Some(serde_json::Value::String(says)) = says else { return Err(FileError::NoDigest(name())) };
        let is = digest::of(&value);
        if is != says {
            return Err(FileError::Changed { name: name(), is, says });
        }
        let certificate: Certificate =
            serde_json::from_value(value).map_err(|error| FileError::Field(name(), error))?;
        if certificate.judged() != certificate.verdict {
            return Err(FileError::Verdict(name()));
        }
        Ok(certificate)
    }

    /// The verdict that follows from the rest of it.
    pub(crate) fn judged(&self) -> Verdict {
        verdict::judge(self.limits.as_ref(), &self.measurements, &self.conduct)
    }
}

#[cfg(test)]
mod tests;
