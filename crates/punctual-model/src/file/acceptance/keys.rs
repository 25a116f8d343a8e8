//! Keys of the limits file.

use crate::acceptance::Statistic;
use crate::file::key::{KeyInfo, Kind, OptionTables, TableInfo, key};

/// One hour: no latency that anybody promises is longer.
const US_MAX: u64 = 3_600_000_000;
const MICROSECONDS: Kind = Kind::Count { min: 1, max: US_MAX };
/// A week.
const SECONDS_MAX: u64 = 7 * 24 * 3600;

/// The document itself.
pub(crate) static LIMITS: TableInfo = TableInfo {
    title: "the limits file",
    keys: &[
        key(
            "seconds_min",
            Kind::Count { min: 1, max: SECONDS_MAX },
            Some("any"),
            "The test must have measured for at least so many seconds, or the certificate is incomplete.",
        ),
        key(
            "loads",
            Kind::Texts,
            Some("any"),
            "Loads that must have run meanwhile (`cpu`, `memory`, `cache`, `disk`, `net`), or the \
             certificate is incomplete.",
        ),
        key("host", Kind::Table(&HOST), None, "Limits of the host's processors."),
        key("guest", Kind::Named(&GUEST), None, "Limits of a guest's vCPUs, as the guest sees them."),
    ],
    shared: &[],
    options: OptionTables::None,
};

static HOST: TableInfo = TableInfo {
    title: "[host]",
    keys: MEASURES,
    shared: &[&[key(
        "processor",
        Kind::Numbered(&HOST_PROCESSOR),
        None,
        "Limits of a single processor, in place of those for all.",
    )]],
    options: OptionTables::None,
};

static GUEST: TableInfo = TableInfo {
    title: "[guest.NAME]",
    keys: MEASURES,
    shared: &[&[key(
        "vcpu",
        Kind::Numbered(&GUEST_VCPU),
        None,
        "Limits of a single vCPU by the guest's number, in place of those for all.",
    )]],
    options: OptionTables::None,
};

static HOST_PROCESSOR: TableInfo =
    TableInfo { title: "[host.processor.N]", keys: MEASURES, shared: &[], options: OptionTables::None };

static GUEST_VCPU: TableInfo =
    TableInfo { title: "[guest.NAME.vcpu.N]", keys: MEASURES, shared: &[], options: OptionTables::None };

const MEASURES: &[KeyInfo] = &[
    key("wakeup", Kind::Table(&WAKEUP), None, "How late a real-time thread runs after its timer expired."),
    key("noise", Kind::Table(&GAPS), None, "Gaps in the execution of a thread that spins."),
    key("hardware", Kind::Table(&GAPS), None, "Those parts of the gaps that the kernel does not know of."),
];

static WAKEUP: TableInfo = TableInfo {
    title: "`wakeup`",
    keys: &[
        key(Statistic::Max.key(), MICROSECONDS, None, "The greatest latency."),
        key(Statistic::P50.key(), MICROSECONDS, None, "The median."),
        key(Statistic::P90.key(), MICROSECONDS, None, "What 90 % of the latencies do not exceed."),
        key(Statistic::P99.key(), MICROSECONDS, None, "The same for 99 %."),
        key(Statistic::P999.key(), MICROSECONDS, None, "The same for 99.9 %."),
        key(Statistic::P9999.key(), MICROSECONDS, None, "The same for 99.99 %."),
        key(Statistic::P99999.key(), MICROSECONDS, None, "The same for 99.999 %."),
    ],
    shared: &[],
    options: OptionTables::None,
};

static GAPS: TableInfo = TableInfo {
    title: "`noise` or `hardware`",
    keys: &[
        key(Statistic::Max.key(), MICROSECONDS, None, "The longest gap."),
        key(
            Statistic::Lost.key(),
            Kind::Count { min: 1, max: 1_000_000 },
            None,
            "All gaps together, in millionths of the time watched.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};
