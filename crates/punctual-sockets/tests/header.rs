//! The guest's header in C is equal to the layout in Rust.

use std::collections::BTreeMap;

use punctual_sockets::call::{Op, options};
use punctual_sockets::layout::{self, in_queue, request, response};

/// Every `#define VMRPC_NAME NUMBER` of the header.
fn header() -> BTreeMap<String, u32> {
    let text = include_str!("../../../guest-module/vmrpc.h");
    let defines = text.lines().filter_map(|line| line.strip_prefix("#define VMRPC_"));
    let pairs = defines.filter_map(|line| line.split_once(' ')).map(|(name, value)| {
        let number = match value.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => value.parse(),
        };
        (name.to_string(), number.expect("a number"))
    });
    pairs.collect()
}

macro_rules! constants {
    ($prefix:literal, $module:ident, $($name:ident)*) => {
        vec![$((format!("{}{}", $prefix, stringify!($name)), $module::$name)),*]
    };
}

#[test]
fn the_header_of_the_guest_is_the_layout() {
    let mut all =
        constants!("", layout, MAGIC VERSION BYTES QUEUES QUEUE_SLOTS SLOTS DATA_BYTES SOCKETS EVENTS);
    all.extend(constants!("", layout, MAGIC_AT VERSION_AT STATUS_AT EPOCH_AT INCARNATION_AT));
    all.extend(constants!("", layout, GUEST_VERSION_AT HOST_SLEEPING_AT QUEUES_AT QUEUE_BYTES));
    all.extend(
        constants!("QUEUE_", in_queue, EVENT_HEAD NEED_IRQ EVENT_TAIL SUBMISSION_HEAD SUBMISSIONS EVENTS),
    );
    all.extend(constants!("", layout, READY_AT ERROR_AT QUEUED_AT HOME_AT HEADERS_AT HEADER_BYTES DATA_AT));
    all.extend(constants!("", layout, STATUS_SERVING STATUS_GONE FREE SUBMITTED DONE));
    all.extend(constants!("REQUEST_", request, STATE WANT_EVENT OP SOCKET FLAGS LENGTH FIRST SECOND OPTIONS));
    all.extend(constants!("REQUEST_", request, LINGER ADDRESS));
    all.extend(constants!("RESPONSE_", response, RESULT LENGTH FLAGS SOCKET ADDRESS));
    all.extend(constants!("", options, REUSE_ADDRESS REUSE_PORT KEEP_ALIVE BROADCAST LINGER));
    assert_eq!(header(), all.into_iter().collect());
}

#[test]
fn the_calls_of_the_guest_have_the_same_numbers() {
    let text = include_str!("../../../guest-module/vmrpc.h");
    let (_, list) = text.split_once("enum vmrpc_op {").expect("a list of calls");
    let (list, _) = list.split_once('}').expect("its end");
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(|name| name.replace("VMRPC_", "").replace(" = 1", "")).collect();
    let ours = Op::ALL.map(|op| format!("{op:?}"));
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    assert_eq!(names.iter().map(|n| plain(n)).collect::<Vec<_>>(), ours.map(|name| plain(&name)));
    assert!(Op::ALL.iter().enumerate().all(|(index, op)| *op as usize == index + 1));
}
