//! The kernel of a guest without its compression: QEMU enters it by PVH, and no guest decompresses it. A
//! translated guest boots in a quarter less processor time that way.
//!
//! Sources: Linux `Documentation/arch/x86/boot.rst` for the header, `lib/decompress_unlz4.c` for the payload,
//! Xen `xen/include/public/elfnote.h` for the entry.

/// What `setup_sects` counts.
const SECTOR: usize = 512;
/// Begins LZ4's legacy format.
const LZ4: [u8; 4] = 0x184C_2102_u32.to_le_bytes();
/// A block of LZ4's legacy format holds at most this when it is decompressed.
const BLOCK_MAX: usize = 8 << 20;
/// No kernel is larger.
const KERNEL_MAX: usize = 256 << 20;
/// `XEN_ELFNOTE_PHYS32_ENTRY` of an owner "Xen", after the size of its value.
const PVH_ENTRY: [u8; 8] = [18, 0, 0, 0, b'X', b'e', b'n', 0];

/// The ELF file in a bzImage that is compressed with LZ4, as Debian's cloud kernels are. `None`: it is none,
/// or QEMU could not enter it.
pub(super) fn uncompressed(image: &[u8]) -> Option<Vec<u8>> {
    let payload = payload(image)?;
    let (blocks, size) = payload.strip_prefix(&LZ4)?.split_last_chunk::<4>()?;
    let kernel = decompress(blocks, u32::from_le_bytes(*size) as usize)?;
    let can_be_entered = kernel.windows(PVH_ENTRY.len()).any(|bytes| bytes == PVH_ENTRY);
    (kernel.starts_with(b"\x7fELF") && can_be_entered).then_some(kernel)
}

/// The compressed kernel in a bzImage.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(*image.get(at..)?.first_chunk()?) as usize);
    (image.get(0x202..0x206)? == b"HdrS").then_some(())?;
    // 0 means 4 in old kernels.
    let sectors = usize::from(*image.get(0x1f1)?);
    let setup = (if sectors == 0 { 4 } else { sectors } + 1) * SECTOR;
    let start = setup.checked_add(word(0x248)?)?;
    image.get(start..start.checked_add(word(0x24c)?)?)
}

/// What the blocks hold, if that is `size` bytes.
fn decompress(mut blocks: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut kernel = vec![0; Some(size).filter(|size| *size <= KERNEL_MAX)?];
    let mut filled = 0;
    while let Some((length, rest)) = blocks.split_first_chunk::<4>() {
        let (block, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let end = (filled + BLOCK_MAX).min(size);
        filled += lz4_flex::block::decompress_into(block, &mut kernel[filled..end]).ok()?;
        blocks = rest;
    }
    (filled == size && blocks.is_empty()).then_some(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bzImage with this payload.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 3 * SECTOR + 16];
        image[0x1f1] = 2;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend(payload);
        image.extend(b"what follows");
        image
    }

    /// Compressed as the kernel's makefile does, in blocks of 8 MiB with the size behind them.
    fn compressed(kernel: &[u8]) -> Vec<u8> {
        let mut payload = LZ4.to_vec();
        for block in kernel.chunks(BLOCK_MAX) {
            let block = lz4_flex::block::compress(block);
            payload.extend((block.len() as u32).to_le_bytes());
            payload.extend(block);
        }
        payload.extend((kernel.len() as u32).to_le_bytes());
        payload
    }

    fn kernel() -> Vec<u8> {
        let mut kernel = b"\x7fELF".to_vec();
        kernel.extend((0..BLOCK_MAX as u32 / 2).flat_map(|n| (n / 7).to_le_bytes()));
        kernel.extend(PVH_ENTRY);
        kernel
    }

    #[test]
    fn a_kernel_comes_out_of_its_blocks_as_it_was() {
        assert!(uncompressed(&image(&compressed(&kernel()))).is_some_and(|found| found == kernel()));
    }

    #[test]
    fn what_is_no_such_kernel_stays_as_it_is() {
        let good = image(&compressed(&kernel()));
        let without_entry = &kernel()[..kernel().len() - 8];
        assert_eq!(uncompressed(&image(&compressed(without_entry))), None);
        assert_eq!(uncompressed(&image(b"\x28\xb5\x2f\xfd with zstd")), None);
        for length in [0, 0x1f0, 0x24f, 2 * SECTOR, good.len() - 400] {
            assert_eq!(uncompressed(&good[..length]), None, "{length} bytes");
        }
        for at in [0x203, 0x248, 0x24c, 0x24f, 3 * SECTOR + 17, 3 * SECTOR + 20, 3 * SECTOR + 23] {
            let mut damaged = good.clone();
            damaged[at] ^= 0x80;
            assert_eq!(uncompressed(&damaged), None, "byte {at:#x}");
        }
    }
}
