//! Writes initramfs archives: cpio in the `newc` format, as Linux defines it in
//! `Documentation/driver-api/early-userspace/buffer-format.rst`.
//!
//! Every time, owner and inode number is fixed, so that the same contents make the same bytes. Writing the
//! format takes one function, so no crate is used for it.

/// Kind and permissions of an entry, as `stat(2)` has them.
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive to which entries are added.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// A directory; its parent must stand before it.
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, (0, 0), b"");
    }

    /// A file that anyone may read and execute.
    pub fn file(&mut self, path: &str, contents: &[u8]) {
        self.entry(path, PROGRAM, (0, 0), contents);
    }

    /// A symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK, (0, 0), target.as_bytes());
    }

    /// A character device.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, CHARACTER_DEVICE, (major, minor), b"");
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), b"");
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        self.entries += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        let name_bytes = path.len() as u32 + 1;
        // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize,
        // check
        let size = contents.len() as u32;
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_bytes, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    /// Names and contents end at multiples of 4.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_header_a_name_and_contents_each_padded_to_four_bytes() {
        let mut archive = Archive::default();
        archive.file("init", b"hello");
        // The format's mark; number, mode, owner and group; links, time, length; devices; length of the name.
        let expected = "070701\
                        00000001000081ed0000000000000000\
                        000000010000000000000005\
                        00000000000000000000000000000000\
                        0000000500000000\
                        init\0\0hello\0\0\0";
        let expected = expected.as_bytes();
        assert_eq!(String::from_utf8_lossy(&archive.bytes), String::from_utf8_lossy(expected));
    }
}
