//! What a run attaches to, as tables.

use punctual_doctor::doctor::Cpus;
use punctual_model::text::printable;
use punctual_run::run::{AttachTarget, AttachedThread, Scheduling};

/// The cells of a row: vCPU or helpers, thread, processors, class.
type Row = [String; 4];

/// A table for each domain: its process, then its threads with their processors and class, now and during
/// the run.
pub(crate) fn text(targets: &[AttachTarget]) -> String {
    let tables: Vec<Vec<Row>> = targets.iter().map(rows).collect();
    let heads = ["vCPU", "thread", "processors", "class"].map(String::from);
    let widths: [usize; 4] = std::array::from_fn(|column| {
        let cells = tables.iter().flatten().chain([&heads]).map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    });
    let line = |[unit, thread, processors, class]: &Row| {
        let [unit_width, thread_width, processors_width, _] = widths;
        let row = format!(
            "  {unit:<unit_width$}  {thread:>thread_width$}  {processors:<processors_width$}  {class}"
        );
        row.trim_end().to_owned() + "\n"
    };
    let table = |(target, rows): (&AttachTarget, Vec<Row>)| {
        title(target) + &line(&heads) + &rows.iter().map(line).collect::<String>() + &absent(target)
    };
    targets.iter().zip(tables).map(table).collect()
}

fn title(target: &AttachTarget) -> String {
    let AttachTarget { domain, process, program, vm, .. } = target;
    let vm = vm.as_ref().map_or_else(String::new, |vm| format!(", VM {}", printable(vm)));
    format!("{}: process {process} ({}){vm}\n", printable(domain), printable(program))
}

fn absent(target: &AttachTarget) -> String {
    match target.vcpus_absent {
        0 => String::new(),
        1 => "  1 vCPU has no thread yet: it is scheduled once it is plugged in\n".into(),
        count => format!("  {count} vCPUs have no thread yet: they are scheduled once they are plugged in\n"),
    }
}

/// The vCPUs, then the helper threads, counted where they are scheduled alike.
fn rows(target: &AttachTarget) -> Vec<Row> {
    let vcpu = |thread: &AttachedThread| {
        let name = thread.vcpu.as_deref().unwrap_or_default();
        row(printable(name).into_owned(), thread.thread.to_string(), &thread.now, &thread.then)
    };
    let mut alike: Vec<(&Scheduling, &Scheduling, usize)> = Vec::new();
    for AttachedThread { now, then, .. } in &target.helpers {
        match alike.iter_mut().find(|of| (of.0, of.1) == (now, then)) {
            Some((_, _, count)) => *count += 1,
            None => alike.push((now, then, 1)),
        }
    }
    let helpers = |(now, then, count): (&Scheduling, &Scheduling, usize)| {
        let name = if count == 1 { "1 helper".into() } else { format!("{count} helpers") };
        row(name, String::new(), now, then)
    };
    target.vcpus.iter().map(vcpu).chain(alike.into_iter().map(helpers)).collect()
}

fn row(name: String, thread: String, now: &Scheduling, then: &Scheduling) -> Row {
    let list = |of: &Scheduling| of.processors.iter().copied().collect::<Cpus>().to_string();
    [name, thread, change(&list(now), &list(then)), change(&now.class, &then.class)]
}

fn change(now: &str, then: &str) -> String {
    if now == then { now.to_owned() } else { format!("{now} -> {then}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduling(processors: &[usize], class: &str) -> Scheduling {
        Scheduling { processors: processors.to_vec(), class: class.into() }
    }

    fn thread(thread: u32, vcpu: Option<&str>, then: &Scheduling) -> AttachedThread {
        let now = scheduling(&[0, 1, 2, 3], "SCHED_OTHER");
        let name = "CPU 0/KVM".into();
        AttachedThread { thread, name, vcpu: vcpu.map(String::from), now, then: then.clone() }
    }

    #[test]
    fn helpers_that_are_scheduled_alike_are_one_row() {
        let (real_time, fair) = (scheduling(&[2, 3], "SCHED_FIFO 69-70"), scheduling(&[0, 1], "SCHED_OTHER"));
        let target = AttachTarget {
            domain: "relay".into(),
            process: 4711,
            program: "qemu-system-x86".into(),
            vm: Some("relay01".into()),
            vcpus: vec![thread(4713, Some("relay.0"), &real_time)],
            vcpus_absent: 1,
            helpers: vec![thread(4711, None, &fair), thread(4712, None, &fair)],
        };
        let expected = "relay: process 4711 (qemu-system-x86), VM relay01\n  \
                        vCPU       thread  processors  class\n  \
                        relay.0      4713  0-3 -> 2-3  SCHED_OTHER -> SCHED_FIFO 69-70\n  \
                        2 helpers          0-3 -> 0-1  SCHED_OTHER\n  \
                        1 vCPU has no thread yet: it is scheduled once it is plugged in\n";
        assert_eq!(text(&[target]), expected);
    }
}
