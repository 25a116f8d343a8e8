//! RTCA in domain 0 of a real Xen: round trips that were recorded there, under RT-Xen's scheduler and Credit.

use punctual_sched::servers::deferrable;

use super::{KERNELS, LEVELS, ORIGINAL};
use crate::error::Error;
use crate::measures::number;
use crate::papers::{self, MeasuredRoundTrips, Rtca};
use crate::reproduction::{Outcome, Table};

/// Quantiles of a cell, in us: 50, 75, 95, 99, 100 %.
const QUANTILES: [&str; 5] = ["median", "p75", "p95", "p99", "max"];

fn quantiles(of: &MeasuredRoundTrips, level: usize) -> [f64; 5] {
    let MeasuredRoundTrips { median_us, p75_us, p95_us, p99_us, max_us } = of;
    [median_us, p75_us, p95_us, p99_us, max_us].map(|quantiles| quantiles[level])
}

/// The record as a table, and measures of each cell: its times; its 75 % quantile divided by that of base
/// under the same kernel (`p75_ratio`), because the two machines have nothing in common but the mechanism; by
/// how much it is shorter than as shipped (`..._gain`); and under Credit its 99 % quantile divided by that
/// under the deferrable server.
pub(crate) fn run(paper: &Rtca) -> Result<Outcome, Error> {
    let mut out = Outcome::default();
    let columns =
        ["scheduler", "kernel", "level", "median", "75 %", "95 %", "99 %", "most", "75 % / base", "paper"];
    let title = "Round trips in us through domain 0 of a real Xen";
    let mut table = Table::new("xen", title, &columns);
    let measured = papers::rtca_measured();
    let of = |scheduler: &str, kernel: &str| -> Result<&MeasuredRoundTrips, Error> {
        let of = measured.get(scheduler).and_then(|kernels| kernels.get(kernel));
        of.ok_or_else(|| Error::Missing(format!("{scheduler}.{kernel}")))
    };
    for (scheduler, kernels) in &measured {
        // The paper has a row of kernels in the same order, the last of which is not its own.
        let all = KERNELS.iter().enumerate().filter(|(_, kernel)| kernels.contains_key(kernel.id));
        for (k, kernel) in all {
            let cell = of(scheduler, kernel.id)?;
            for (l, level) in LEVELS.iter().enumerate() {
                let times = quantiles(cell, l);
                let ratio = times[1] / quantiles(cell, 0)[1];
                let mut row = [scheduler, kernel.id, level].map(str::to_string).to_vec();
                let printed = paper.table1.row("p75", l)[k] / paper.table1.row("p75", 0)[k];
                row.extend(times.into_iter().chain([ratio, printed]).map(number));
                table.rows.push(row);
                let mut set = |name: &str, value: f64| {
                    out.measures.set_one(format!("xen.{scheduler}.{}.{level}.{name}", kernel.id), value);
                };
                set("p75_ratio", ratio);
                let as_shipped = quantiles(of(scheduler, ORIGINAL.id)?, l);
                for ((name, time), before) in QUANTILES.iter().zip(times).zip(as_shipped) {
                    set(&format!("{name}_us"), time);
                    set(&format!("{name}_gain"), before / time);
                }
                set("p99_of_deferrable", times[3] / quantiles(of(deferrable::NAME, kernel.id)?, l)[3]);
            }
        }
    }
    table.notes = vec![
        "Not of this run: recorded in papers/rtca/measured.toml. The pair and up to three flooding guests \
         share a processor beside domain 0's."
            .into(),
        "75 % / base: the 75 % quantile divided by that of base; paper: the same of its Table I.".into(),
    ];
    out.tables.push(table);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least of the times below which a share of them is, by nearest rank.
    fn quantile(sorted: &[f64], percent: usize) -> f64 {
        sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
    }

    /// `papers/rtca/measured.toml` has the quantiles of the times that were recorded.
    #[test]
    fn round_trips_in_xen_are_those_of_the_measurement() {
        let records = [
            ("deferrable", include_str!("../../../../measurements/2026-11-28-rtca-xen/deferrable.txt")),
            ("credit", include_str!("../../../../measurements/2026-11-28-rtca-xen/credit.txt")),
        ];
        let measured = papers::rtca_measured();
        assert_eq!(measured.len(), records.len());
        for (scheduler, record) in records {
            let mut cells = 0;
            for line in record.lines().filter_map(|line| line.strip_prefix("TRIPS ")) {
                let words: Vec<&str> = line.split_whitespace().collect();
                let kernel = if words[1] == "0" { "original".into() } else { format!("rtca-{}", words[1]) };
                let level: usize = words[0].parse().unwrap();
                let mut times: Vec<f64> = words[3..].iter().map(|time| time.parse().unwrap()).collect();
                times.sort_by(f64::total_cmp);
                let of = quantiles(&measured[scheduler][&kernel], level);
                assert_eq!(of, [50, 75, 95, 99, 100].map(|percent| quantile(&times, percent)), "{line:.20}");
                cells += 1;
            }
            assert_eq!(cells, measured[scheduler].len() * LEVELS.len());
        }
    }
}
