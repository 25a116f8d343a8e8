//! Any file as a pcap file: nothing panics, packets are no longer than a frame, and what was read and written
//! again reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_switch::frame::FRAME_BYTES_MAX;
use punctual_switch::pcap::{Packet, Reader, Writer};

fn packets(bytes: &[u8]) -> Vec<Packet> {
    let Ok(mut reader) = Reader::new(bytes) else { return Vec::new() };
    let mut packets = Vec::new();
    while let Ok(Some(packet)) = reader.next_packet() {
        assert!(packet.frame.len() <= FRAME_BYTES_MAX as usize);
        packets.push(packet);
    }
    packets
}

fuzz_target!(|bytes: &[u8]| {
    let read = packets(bytes);
    let mut written = Vec::new();
    let mut writer = Writer::new(&mut written).expect("memory");
    // A file has seconds of 32 bits; a fraction of many seconds may pass them.
    let fits = |packet: &&Packet| u32::try_from(packet.time.as_secs()).is_ok();
    let kept: Vec<Packet> = read.iter().filter(fits).cloned().collect();
    for packet in &kept {
        writer.write(packet.time, &packet.frame).expect("memory");
    }
    drop(writer);
    assert_eq!(packets(&written), kept);
});
