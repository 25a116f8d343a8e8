//! Resources and critical sections of a host file: their order, their nesting, the way back to text.

use punctual_model::Host;
use punctual_model::file::{Overrides, parse, to_toml};
use punctual_model::index::DomainIx;
use punctual_model::locks::{CriticalSection, LockStep, Protocol};
use punctual_sched::Duration;

const fn us(n: u64) -> Duration {
    Duration::from_us(n)
}

fn host(domain: &str) -> Host {
    let text = format!(
        "machine.processors = 1\npool.cpu = {{ policy = 'fixed-priority' }}\n[domain.vm]\n\
         resource = {{ a = {{ protocol = 'inherit' }}, b = {{ protocol = 'ceiling' }}, c = {{}} }}\n{domain}"
    );
    parse(&text, "host.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn task(name: &str, sections: &str) -> String {
    format!("task.{name} = {{ period = '10ms', cost = '1ms', sections = [{sections}] }}\n")
}

const NESTED: &str = "{ resource = 'b', after = '300us', length = '100us' },
                      { resource = 'c', after = '600us', length = '50us' },
                      { resource = 'a', after = '100us', length = '400us' },
                      { resource = 'c', after = '300us', length = '50us' }";

#[test]
fn sections_are_ordered_by_their_beginning_and_locks_by_their_nesting() {
    let host = host(&task("t", NESTED));
    let protocols: Vec<Protocol> = host.domains[0].resources.iter().map(|of| of.protocol).collect();
    assert_eq!(protocols, [Protocol::Inherit, Protocol::Ceiling, Protocol::None]);
    let section =
        |resource, after, length| CriticalSection { resource, after: us(after), length: us(length) };
    let sections = [section(0, 100, 400), section(1, 300, 100), section(2, 300, 50), section(2, 600, 50)];
    assert_eq!(host.tasks[0].sections, sections);
    let steps = host.tasks[0].lock_steps().into_iter().map(|step| (step.at, step.resource, step.locks));
    let expected = [
        (us(100), 0, true),
        (us(300), 1, true),
        (us(300), 2, true),
        (us(350), 2, false),
        (us(400), 1, false),
        (us(500), 0, false),
        (us(600), 2, true),
        (us(650), 2, false),
    ];
    assert_eq!(steps.collect::<Vec<_>>(), expected);
    let again = parse(&to_toml(&host), "host.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(again, host);
}

#[test]
fn a_shorter_job_locks_earlier_in_proportion() {
    let step = LockStep { at: us(300), resource: 0, locks: true };
    let at = |job| step.at_of(Duration::from_ns(job), us(1_000)).as_ns();
    assert_eq!([1_000_000, 500_000, 10, 3, 0].map(at), [300_000, 150_000, 3, 0, 0]);
}

#[test]
fn tasks_that_take_resources_in_different_orders_may_deadlock() {
    let nest = |outer: &str, inner: &str| {
        format!(
            "{{ resource = '{outer}', length = '500us' }},
             {{ resource = '{inner}', after = '1us', length = '9us' }}"
        )
    };
    let of = |tasks: &[(&str, &str)]| {
        let tasks =
            tasks.iter().enumerate().map(|(n, (outer, inner))| task(&format!("t{n}"), &nest(outer, inner)));
        host(&tasks.collect::<String>()).deadlock(DomainIx(0))
    };
    assert_eq!(of(&[("a", "b"), ("a", "b"), ("b", "c")]), None);
    assert_eq!(of(&[("a", "b"), ("b", "a")]), Some(vec![0, 1]));
    assert_eq!(of(&[("a", "b"), ("b", "c"), ("c", "a")]), Some(vec![0, 1, 2]));
    assert_eq!(of(&[("c", "b"), ("b", "c"), ("a", "c")]), Some(vec![1, 2]));
}

#[test]
fn a_single_task_and_ceilings_never_deadlock() {
    let both = "{ resource = 'a', length = '90us' }, { resource = 'b', after = '1us', length = '9us' },
                { resource = 'b', after = '100us', length = '90us' },
                { resource = 'a', after = '101us', length = '9us' }";
    assert_eq!(host(&task("t", both)).deadlock(DomainIx(0)), None);
    let mut twice = host(&(task("t", both) + &task("u", both)));
    assert_eq!(twice.deadlock(DomainIx(0)), Some(vec![0, 1]));
    twice.domains[0].resources[0].protocol = Protocol::Ceiling;
    assert_eq!(twice.deadlock(DomainIx(0)), None);
}
