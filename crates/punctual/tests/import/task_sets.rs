//! Task sets from elsewhere: tables and files of SchedCAT, down to what the other commands say of them.

use punctual_model::host::{Arrival, Work};
use punctual_sched::Duration;

use super::{check, import, import_stdin};

/// EDF meets both deadlines; under fixed priorities the response time of `b` is 8 ms.
const TABLE: &str = "Task;C (ms);T (ms)\na;2;5\nb;4;7\n";

/// What `check` says of the tasks `a` and `b`.
fn verdicts(toml: &str) -> Vec<String> {
    let checked = check(toml);
    let lines = checked.lines().filter(|line| line.starts_with("a ") || line.starts_with("b "));
    lines.map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn an_imported_table_is_checked() {
    let edf = import_stdin("csv", TABLE);
    assert_eq!(verdicts(&edf.toml), ["a guaranteed", "b guaranteed"]);
    edf.must_say(&["policy edf"]);
    let fixed = import("csv", &[TABLE], &["--policy", "fixed-priority"]);
    assert_eq!(verdicts(&fixed.toml), ["a guaranteed", "b not"]);
    assert!(!fixed.says(&["policy edf"]));
}

#[test]
fn a_task_set_has_the_processors_that_it_keeps_busy() {
    let tasks = "<task period='10' wcet='7'/>".repeat(4);
    let imported = import("schedcat", &[&format!("<taskset>{tasks}</taskset>")], &[]);
    assert_eq!(imported.host().processors, 3);
    imported.must_say(&["taken as 3 (--processors)"]);
    imported.must_say(&["taken as microseconds (--unit)"]);
}

#[test]
fn units_are_those_of_the_option() {
    for (unit, ns) in [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)] {
        let text = "<task period='2000' wcet='3'/>";
        let answers = [
            import("schedcat", &[text], &["--unit", unit]),
            import("csv", &["c,t\n3,2000"], &["--unit", unit]),
        ];
        for answer in answers {
            let Work::Jobs { arrival, cost, .. } = answer.host().tasks[0].work else { panic!("jobs") };
            let distance = match arrival {
                Arrival::Periodic { period, .. } => period,
                Arrival::Sporadic { separation, .. } => separation,
            };
            assert_eq!((distance, cost.max), (Duration::from_ns(2_000 * ns), Duration::from_ns(3 * ns)));
            assert!(!answer.says(&["microseconds"]));
        }
    }
}

#[test]
fn what_is_wrong_has_its_place() {
    let no_unit = import("csv", &["wcet,period_us\n1,2\n"], &[]);
    assert_eq!(no_unit.code, Some(2));
    no_unit.must_say(&["the column `wcet` has no unit"]);
    no_unit.must_say(&["wcet_us", "--unit"]);
    let typing = import("csv", &["wcet_us,peroid_us\n1,2\n"], &[]);
    typing.must_say(&["did you mean `period`?"]);
    let odd = import("csv", &["wcet_us,period_us,dedline_us\n1,2,3\n"], &[]);
    odd.must_say(&["file0:1:", "\"dedline_us\"", "did you mean deadline?"]);
    let cell = import("csv", &["wcet_us,period_us\n1,20\n1,ten\n"], &[]);
    cell.must_say(&["`period` is \"ten\""]);
    cell.must_say(&["file0:3:3"]);
    let too_short = import("csv", &["wcet_us,period_us\n1,20\n0.1,0.5\n"], &[]);
    too_short.must_say(&["file0:3:"]);
}
