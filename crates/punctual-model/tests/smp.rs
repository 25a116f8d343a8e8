//! vCPUs that wait for each other: their tasks, and the way back to text.

use punctual_model::file::{Overrides, parse, to_toml};
use punctual_model::host::Work;
use punctual_model::index::DomainIx;
use punctual_model::smp::{SmpKind, SmpWork};
use punctual_sched::{CpuId, Duration};

const fn us(n: u64) -> Duration {
    Duration::from_us(n)
}

#[test]
fn each_vcpu_has_a_task_and_the_file_comes_back_as_it_was() {
    let kinds = [
        ("work = 'spinlock', held = '2us'", SmpKind::Spinlock { held: us(2) }),
        ("work = 'mutex', held = '3us'", SmpKind::Mutex { held: us(3) }),
        ("work = 'interrupt', answer = '4us'", SmpKind::Interrupt { answer: us(4), callers: 3 }),
        ("work = 'interrupt', answer = '4us', callers = 1", SmpKind::Interrupt { answer: us(4), callers: 1 }),
        ("work = 'barrier'", SmpKind::Barrier),
        ("work = 'pipe'", SmpKind::Pipe),
    ];
    for (keys, kind) in kinds {
        let text = format!(
            "machine.processors = 2\npool.cpu = {{ policy = 'rtds' }}\n[domain.vm]\nvcpus = 3\n\
             budget = '1ms'\nperiod = '10ms'\nsmp = {{ {keys}, cost = '9us' }}\n"
        );
        let host = parse(&text, "host.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(host.smp, [(DomainIx(0), SmpWork { kind, cost: us(9) })]);
        for (vcpu, task) in host.tasks.iter().enumerate() {
            assert_eq!(task.name, format!("smp-{vcpu}"));
            assert_eq!(task.work, Work::Hog { start: Duration::ZERO });
            let affinity = task.params.affinity.as_ref().expect("one vCPU");
            assert_eq!(affinity.iter().collect::<Vec<_>>(), [CpuId(vcpu as u32)]);
        }
        assert_eq!(host.tasks.len(), 3);
        let again = parse(&to_toml(&host), "host.toml", &Overrides::default());
        assert_eq!(again.unwrap_or_else(|e| panic!("{e}")), host, "{keys}");
    }
}
