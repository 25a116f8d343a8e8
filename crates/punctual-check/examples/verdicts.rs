//! How many tasks `punctual check` guarantees, refutes and leaves unknown: in the example host files, on
//! random hosts of one pool, and on random hosts whose guests have several vCPUs.
//!
//! ```sh
//! cargo run -p punctual-check --example verdicts -- 500
//! ```

use std::path::Path;

use punctual_analysis::{Answer, Answers};
use punctual_check::answers;
use punctual_model::Host;
use punctual_model::file::{Overrides, parse};
use punctual_testkit::random::{Random, random_host, random_several};

#[derive(Default)]
struct Count {
    guaranteed: usize,
    refuted: usize,
    unknown: usize,
}

impl Count {
    fn add(&mut self, answers: &Answers) {
        for of in answers.tasks.values() {
            match of.answer {
                Answer::Guaranteed { .. } => self.guaranteed += 1,
                Answer::Refuted(_) => self.refuted += 1,
                Answer::Unknown(_) => self.unknown += 1,
            }
        }
    }

    fn print(&self, what: &str) {
        let Count { guaranteed, refuted, unknown } = self;
        let all = (guaranteed + refuted + unknown).max(1);
        let share = 100.0 * *unknown as f64 / all as f64;
        println!(
            "{what:28} guaranteed {guaranteed:5}  refuted {refuted:5}  unknown {unknown:5} ({share:4.1} %)"
        );
    }
}

fn main() {
    let hosts = std::env::args().nth(1).map_or(500, |text| text.parse().expect("the number of hosts"));
    let examples = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    let mut files: Vec<_> = std::fs::read_dir(examples)
        .expect("the examples are there")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    let mut all = Count::default();
    for path in &files {
        let name = path.file_stem().expect("a file").to_string_lossy();
        let text = std::fs::read_to_string(path).expect("it can be read");
        // Files of Linux hosts have another analysis.
        let Ok(host) = parse(&text, &name, &Overrides::default()) else { continue };
        let answers = answers(&host);
        let mut count = Count::default();
        count.add(&answers);
        all.add(&answers);
        count.print(&name);
    }
    all.print("all examples");
    random("random hosts", hosts, 1 << 47, random_host);
    random("guests of several vCPUs", hosts, 1 << 48, random_several);
}

fn random(what: &str, hosts: u64, seed: u64, host: impl Fn(&mut Random) -> Host) {
    let mut count = Count::default();
    (0..hosts).for_each(|case| count.add(&answers(&host(&mut Random::new(seed + case)))));
    count.print(what);
}
