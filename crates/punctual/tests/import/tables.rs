//! The tables of `docs/import.md` against the formats themselves: `formats` lists what libvirt's schema,
//! rt-app's grammar, xl's printf formats, and files of SchedCAT and SimSo have. Each must be in a table, and
//! become what its row says.

use super::{Answer, import};

const DOCUMENT: &str = include_str!("../../../../docs/import.md");

/// What a row says first of what becomes of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Carried,
    Noted,
    PassedOver,
}

/// A row of a table.
struct Row {
    /// The names in its first column.
    names: Vec<String>,
    first: String,
    second: String,
    fate: Fate,
}

/// The rows of the tables in a section whose last column says what becomes of the element.
fn rows(section: &str) -> Vec<Row> {
    let (_, text) = DOCUMENT.split_once(&format!("\n## {section}")).expect("the section");
    let text = text.split("\n## ").next().unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| becomes |"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let (first, last) = (cells[0], cells[cells.len() - 1]);
        let fate = [("carried", Fate::Carried), ("noted", Fate::Noted), ("passed over", Fate::PassedOver)];
        let fate = fate.into_iter().find(|(word, _)| last.starts_with(word));
        Row {
            names: first.split('`').skip(1).step_by(2).map(String::from).collect(),
            first: first.into(),
            second: cells[1].into(),
            fate: fate.unwrap_or_else(|| panic!("what becomes of it? {line}")).1,
        }
    };
    lines.map(row).collect()
}

fn lines(fixture: &'static str) -> impl Iterator<Item = &'static str> {
    fixture.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// The host file without comments.
fn host_of(answer: &Answer) -> String {
    assert_eq!(answer.code, Some(0), "{}", answer.messages);
    answer.toml.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// The texts of the notes, without file and line.
fn notes(answer: &Answer) -> Vec<&str> {
    answer.messages.lines().filter_map(|line| line.splitn(4, ':').nth(3)).collect()
}

/// Checks what an element changes: the import `with` it against the one `without`.
#[track_caller]
fn becomes(name: &str, fate: Fate, without: &Answer, with: &Answer) {
    let is_same = host_of(without) == host_of(with);
    let before = notes(without);
    let is_noted = notes(with).iter().any(|note| !before.contains(note));
    match fate {
        Fate::Carried => assert!(!is_same, "{name} is carried, but changes nothing:\n{}", with.toml),
        Fate::Noted => assert!(is_noted, "{name} has no note:\n{}", with.messages),
        Fate::PassedOver => assert!(is_same && !is_noted, "{name}: {}{}", with.messages, with.toml),
    }
}

/// A name of libvirt's table as a path below `domain`.
fn path(name: &str, element: &str) -> String {
    match (name.strip_prefix('@'), name.starts_with("domain@")) {
        (Some(attribute), _) => format!("{element}@{attribute}"),
        (None, true) => name.into(),
        (None, false) => format!("domain/{name}"),
    }
}

#[test]
fn every_element_of_libvirts_schema_is_in_the_table() {
    let (mut named, mut whole): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for row in rows("libvirt") {
        let mut element = String::new();
        for name in &row.names {
            let path = path(name, &element);
            element = if name.starts_with('@') { element } else { path.clone() };
            if row.first.contains("with what is in") {
                whole.push(path.clone());
            }
            named.push(path);
        }
    }
    for known in lines(include_str!("formats/libvirt-9.0.0.txt")) {
        let is_inside =
            |of: &String| known.strip_prefix(of.as_str()).is_some_and(|rest| rest.starts_with(['/', '@']));
        let holds = |name: &String| name.strip_prefix(known).is_some_and(|rest| rest.starts_with(['/', '@']));
        let is_named = named.iter().any(|name| name == known || holds(name)) || whole.iter().any(is_inside);
        assert!(is_named, "libvirt's {known} is in no row of docs/import.md");
    }
}

/// A domain with these attributes and children.
fn domain(attributes: &str, children: &str) -> String {
    format!("<domain type='kvm'{attributes}>{children}</domain>")
}

/// A domain without the element and one with it.
fn libvirt_samples(name: &str) -> (String, String) {
    const NAME: &str = "<name>a</name>";
    const VCPU: &str = "<vcpu cpuset='1-2'>2</vcpu>";
    const QUOTA: &str = "<period>10000</period><quota>5000</quota>";
    let of = |children: &str| domain("", &format!("{NAME}{children}"));
    let vcpu = |element: &str| (of("<vcpu cpuset='1-2'>4</vcpu>"), of(element));
    let single = |enabled: &str, more: &str| {
        let one = format!("<vcpu id='0' enabled='yes'{more}/><vcpu id='1' enabled='{enabled}'/>");
        of(&format!("{VCPU}<vcpus>{one}</vcpus>"))
    };
    let tune = |without: &str, with: &str| {
        let domain = |tune: &str| of(&format!("{VCPU}<cputune>{tune}</cputune>"));
        (domain(without), domain(with))
    };
    let whole = |without: &str, with: &str| {
        let domain = |tune: &str| of(&format!("<vcpu cpuset='1'>1</vcpu><cputune>{tune}</cputune>"));
        (domain(without), domain(with))
    };
    let global =
        |period: u32| format!("<global_period>{period}</global_period><global_quota>5000</global_quota>");
    match name {
        "name" => (of(""), of("").replace('a', "b").replace("nbme", "name").replace("dombin", "domain")),
        "domain@type" => (of(""), of("").replace("'kvm'", "'xen'")),
        "domain@id" => (of(""), domain(" id='7'", NAME)),
        "vcpu" => vcpu("<vcpu cpuset='1-2'>3</vcpu>"),
        "vcpu@cpuset" => vcpu("<vcpu cpuset='1-3'>4</vcpu>"),
        "vcpu@current" => vcpu("<vcpu cpuset='1-2' current='1'>4</vcpu>"),
        "vcpu@placement" => vcpu("<vcpu placement='auto'>4</vcpu>"),
        "vcpus/vcpu@id" | "vcpus/vcpu@enabled" => (single("yes", ""), single("no", "")),
        "vcpus/vcpu@hotpluggable" => (single("yes", ""), single("yes", " hotpluggable='no'")),
        "vcpus/vcpu@order" => (single("yes", ""), single("yes", " order='1'")),
        "cputune/vcpupin" => tune("", "<vcpupin vcpu='0' cpuset='2'/>"),
        "cputune/vcpusched" => tune("", "<vcpusched vcpus='0' scheduler='fifo' priority='3'/>"),
        "cputune/shares" => tune("", "<shares>512</shares>"),
        "cputune/quota" => tune("<period>10000</period>", QUOTA),
        "cputune/period" => tune("<quota>5000</quota>", QUOTA),
        "cputune/global_quota" => whole("<global_period>10000</global_period>", &global(10_000)),
        "cputune/global_period" => whole(&global(20_000), &global(10_000)),
        "cputune/emulatorpin" => tune("", "<emulatorpin cpuset='0'/>"),
        "cputune/iothreadpin" => tune("", "<iothreadpin iothread='1' cpuset='0'/>"),
        "cputune/emulatorsched" => tune("", "<emulatorsched scheduler='fifo' priority='3'/>"),
        other => {
            let (parent, tag) = other.split_once('/').unwrap_or(("", other));
            match parent {
                "" => (of(""), of(&format!("<{tag}/>"))),
                "cputune" => tune("", &format!("<{tag}/>")),
                _ => panic!("no sample of {other}"),
            }
        }
    }
}

#[test]
fn elements_of_libvirt_become_what_the_table_says() {
    for row in rows("libvirt") {
        // Attributes in parentheses are in the sample of their element.
        for name in row.names.iter().filter(|name| !name.starts_with('@')) {
            let (without, with) = libvirt_samples(name);
            let options = ["--processors", "4"];
            let [without, with] = [without, with].map(|text| import("libvirt", &[&text], &options));
            becomes(name, row.fate, &without, &with);
        }
    }
}

/// A workload: keys of the file, of `global` and of a thread.
fn workload(file: &str, global: &str, thread: &str) -> String {
    format!(
        "{{ {file} \"global\": {{ {global} }},\n\"tasks\": {{ \"t\": {{ {thread} \"run\": 1000, \
         \"timer\": {{ \"ref\": \"unique\", \"period\": 10000 }} }} }} }}"
    )
}

/// A workload without the key and one with it.
fn rt_app_samples(kind: &str, key: &str) -> (String, String) {
    const DEADLINE: &str = r#""policy": "SCHED_DEADLINE", "dl-runtime": 2000, "#;
    let of = |thread: &str| workload("", "", thread);
    let more = |thread: &str| (of(""), of(thread));
    let one = |text: &str| of("").replace(r#""run": 1000"#, text);
    match (kind, key) {
        ("file", "global") => (workload("", "", ""), workload("", r#""duration": 5"#, "")),
        ("file", "tasks") => (of(""), of("").replace("\"t\"", "\"u\"")),
        ("file", key) => (of(""), workload(&format!("\"{key}\": {{}},"), "", "")),
        ("global", "duration") => (of(""), workload("", r#""duration": 5"#, "")),
        ("global", "default_policy") => (of(""), workload("", r#""default_policy": "SCHED_FIFO""#, "")),
        ("global", key) => (of(""), workload("", &format!("\"{key}\": 0"), "")),
        ("thread", "cpus") => more(r#""cpus": [1], "#),
        ("thread", "delay") => more(r#""delay": 500, "#),
        ("thread", "instance") => more(r#""instance": 2, "#),
        ("thread", "loop") => (
            one(r#""phases": { "p": { "run": 1000, "sleep": 9 }, "q": { "run": 5, "sleep": 1 } }"#),
            one(
                r#""phases": { "p": { "run": 1000, "sleep": 9, "loop": 2 }, "q": { "run": 5, "sleep": 1 } }"#,
            ),
        ),
        ("thread", "phases") => (of(""), one(r#""phases": { "p": { "run": 2000, "sleep": 10 } }"#)),
        ("thread", "policy") => more(r#""policy": "SCHED_FIFO", "#),
        ("thread", "priority") => more(r#""priority": 5, "#),
        ("thread", "dl-runtime") => (of(DEADLINE), of(&DEADLINE.replace("2000", "3000"))),
        ("thread", "dl-period") => (of(DEADLINE), of(&format!("{DEADLINE} \"dl-period\": 9000, "))),
        ("thread", "dl-deadline") => {
            let period = format!("{DEADLINE} \"dl-period\": 9000, ");
            (of(&period), of(&format!("{period} \"dl-deadline\": 8000, ")))
        }
        ("thread", key @ ("period" | "deadline")) => {
            let old = r#""policy": "SCHED_DEADLINE", "runtime": 2000, "period": 9000, "deadline": 8000, "#;
            let shorter =
                if key == "period" { old.replace("9000", "8500") } else { old.replace("8000", "7000") };
            (of(old), of(&shorter))
        }
        ("thread" | "event", "runtime") => more(r#""runtime": 2000, "#),
        ("event", "run") => more(r#""run0": 2000, "#),
        ("event", "sleep") => (
            of("").replace("timer", "sleep").replace(r#"{ "ref": "unique", "period": 10000 }"#, "100"),
            of("").replace("timer", "sleep").replace(r#"{ "ref": "unique", "period": 10000 }"#, "200"),
        ),
        ("event", "timer") => (of(""), of("").replace("10000", "20000")),
        (_, key) => more(&format!("\"{key}\": \"x\", ")),
    }
}

#[test]
fn every_key_of_rt_app_is_in_the_table_and_becomes_what_it_says() {
    let rows = rows("rt-app");
    for known in lines(include_str!("formats/rt-app.txt")) {
        let (kind, key) = known.split_once(' ').expect("kind and key");
        let is_global = |row: &&Row| row.first.starts_with("`global`: ");
        let has = |row: &&Row| row.names.iter().skip(usize::from(is_global(row))).any(|name| name == key);
        let row = match (kind, key) {
            ("file", "global") => rows.iter().find(is_global),
            ("global", _) => rows.iter().filter(is_global).find(has),
            _ => rows.iter().filter(|row| !is_global(row)).find(has),
        };
        let row = row.unwrap_or_else(|| panic!("rt-app's {known} is in no row of docs/import.md"));
        let (without, with) = rt_app_samples(kind, key);
        let [without, with] = [without, with].map(|text| import("rt-app", &[&text], &["--processors", "4"]));
        becomes(known, row.fate, &without, &with);
    }
}

/// A task set without the element and one with it.
fn schedcat_samples(name: &str) -> (String, String) {
    let task = |attributes: &str, inside: &str| {
        format!("<taskset><task period='9' wcet='2'{attributes}>{inside}</task></taskset>")
    };
    let attribute = |with: &str| (task("", ""), task(with, ""));
    let changed = |from: &str, to: &str| (task("", ""), task("", "").replace(from, to));
    let point = |inside: &str| format!("<testpoint>{inside}{}</testpoint>", task("", ""));
    let resource = "<resources><requirement res_id='1' max_writes='4'/></resources>";
    match name {
        "testpoint/config" => (point(""), point("<config tasks='1'/>")),
        "testpoint/taskset" => (point(""), point("").replace("'2'", "'3'")),
        "taskset/properties" => changed("<taskset>", "<taskset><properties count='1'/>"),
        "taskset/task" => changed("</taskset>", "<task period='8' wcet='1'/></taskset>"),
        "task@id" => attribute(" id='7'"),
        "task@period" => changed("'9'", "'8'"),
        "task@wcet" => changed("'2'", "'3'"),
        "task@deadline" => attribute(" deadline='5'"),
        "task@partition" => attribute(" partition='3'"),
        "task@response_time" => attribute(" response_time='8'"),
        "task@wss" => attribute(" wss='64'"),
        "task/resources" => (task("", ""), task("", resource)),
        other => panic!("no sample of {other}"),
    }
}

#[test]
fn every_element_of_schedcat_is_in_the_table_and_becomes_what_it_says() {
    let rows = rows("SchedCAT");
    for known in lines(include_str!("formats/schedcat.txt")) {
        let row = rows.iter().find(|row| row.names.iter().any(|name| name == known));
        let row = row.unwrap_or_else(|| panic!("SchedCAT's {known} is in no row of docs/import.md"));
        let (without, with) = schedcat_samples(known);
        let [without, with] =
            [without, with].map(|text| import("schedcat", &[&text], &["--processors", "4"]));
        becomes(known, row.fate, &without, &with);
    }
    let (plain, _) = schedcat_samples("task@id");
    for other in ["<task period='9' wcet='2' criticality='1'", "<x/><task period='9' wcet='2'"] {
        let other = plain.replace("<task period='9' wcet='2'", other);
        let [without, with] =
            [&plain, &other].map(|text| import("schedcat", &[text], &["--processors", "4"]));
        becomes("another one", Fate::Noted, &without, &with);
    }
}

/// A simulation without the element and one with it.
fn simso_samples(name: &str) -> (String, String) {
    let plain = "<simulation duration='100000000' cycles_per_ms='1000000'>\
                 <sched class='simso.schedulers.EDF'/><caches/>\
                 <processors><processor name='CPU 1' id='1'/></processors>\
                 <tasks><task name='T1' id='1' period='9' deadline='9' WCET='2' abort_on_miss='no'/></tasks>\
                 </simulation>";
    let (element, rest) = name.split_once(['@', '/']).expect("an element and more");
    let changed = |from: &str, to: &str| {
        assert!(plain.contains(from), "{from}");
        (plain.to_owned(), plain.replacen(from, to, 1))
    };
    match name {
        "simulation@duration" => changed("'100000000'", "'200000000'"),
        "simulation@cycles_per_ms" => changed("'1000000'", "'2000000'"),
        "simulation@etm" => changed("<simulation", "<simulation etm='acet'"),
        "simulation@use_wcet" => changed("<simulation", "<simulation use_wcet='no'"),
        "sched@class" => changed("schedulers.EDF", "schedulers.RM"),
        "sched@className" => changed("class='simso.schedulers.EDF'", "className='./RM_mono.py'"),
        "sched/field" => {
            let field = "<sched class='simso.schedulers.EDF'><field name='k' value='1' type='int'/></sched>";
            changed("<sched class='simso.schedulers.EDF'/>", field)
        }
        "caches/cache" => changed("<caches/>", "<caches><cache name='L1' id='0' size='9'/></caches>"),
        "processors/field" => changed("<processors>", "<processors><field name='x' type='int'/>"),
        "processors/processor" => changed("</processors>", "<processor name='CPU 2' id='2'/></processors>"),
        "processor@name" => changed("'CPU 1'", "'CPU 7'"),
        "processor@id" => changed("'CPU 1' id='1'", "'CPU 1' id='7'"),
        "tasks/field" => changed("<tasks>", "<tasks><field name='x' type='int'/>"),
        "tasks/task" => changed("</tasks>", "<task name='U' period='8' deadline='8' WCET='1'/></tasks>"),
        "task@name" => changed("'T1'", "'T7'"),
        "task@id" => changed("'T1' id='1'", "'T1' id='7'"),
        "task@task_type" => changed("<task name", "<task task_type='Sporadic' name"),
        "task@periodic" => {
            let other = "<task name='U' period='8' deadline='8' WCET='1' periodic='no'/></tasks>";
            let both = plain.replace("</tasks>", &other.replace(" periodic='no'", ""));
            (both.clone(), both.replace("WCET='1'", "WCET='1' periodic='no'"))
        }
        "task@abort_on_miss" => changed("'no'", "'yes'"),
        "task@period" => changed("period='9'", "period='10'"),
        "task@deadline" => changed("deadline='9'", "deadline='8'"),
        "task@WCET" => changed("WCET='2'", "WCET='3'"),
        "task@list_activation_dates" => {
            let sporadic = plain.replace("<task name", "<task task_type='Sporadic' name");
            (sporadic.clone(), sporadic.replace("<task ", "<task list_activation_dates='1, 20' "))
        }
        // The tag of one element begins with that of another.
        _ if plain.contains(&format!("<{element} ")) => {
            changed(&format!("<{element} "), &format!("<{element} {rest}='3' "))
        }
        _ => changed(&format!("<{element}"), &format!("<{element} {rest}='3'")),
    }
}

#[test]
fn every_element_of_simso_is_in_the_table_and_becomes_what_it_says() {
    let rows = rows("SimSo");
    for known in lines(include_str!("formats/simso.txt")) {
        let row = rows.iter().find(|row| row.names.iter().any(|name| name == known));
        let row = row.unwrap_or_else(|| panic!("SimSo's {known} is in no row of docs/import.md"));
        let (without, with) = simso_samples(known);
        let [without, with] = [without, with].map(|text| import("simso", &[&text], &[]));
        becomes(known, row.fate, &without, &with);
    }
    let (plain, _) = simso_samples("task@id");
    for other in ["<task criticality='1' ", "<x/><task "] {
        let other = plain.replace("<task ", other);
        let [without, with] = [&plain, &other].map(|text| import("simso", &[text], &[]));
        becomes("another one", Fate::Noted, &without, &with);
    }
}

/// Each name of each column, alone and with its unit, is read as its row says.
#[test]
fn every_column_of_the_table_of_tasks_becomes_what_it_says() {
    let rows = rows("CSV");
    let of = |names: &str, cells: &str| import("csv", &[&format!("{names}\n{cells}\n")], &["--unit", "us"]);
    let is_time =
        |first: &str| ["wcet", "bcet", "period", "separation", "deadline", "offset"].contains(&first);
    let mut read = 0;
    for row in &rows {
        let Some(first) = row.names.first() else {
            becomes("others", row.fate, &of("c,t", "1,9"), &of("c,t,colour", "1,9,red"));
            continue;
        };
        for name in &row.names {
            read += 1;
            let (without, with) = match first.as_str() {
                "wcet" => (of("cost,t", "1,9"), of(&format!("{name},t"), "2,9")),
                "period" => (of("c,period", "1,9"), of(&format!("c,{name}"), "1,8")),
                "affinity" | "partition" => (of("c,t", "1,9"), of(&format!("c,t,{name}"), "1,9,3")),
                _ => (of("c,t", "2,9"), of(&format!("c,t,{name}"), "2,9,1")),
            };
            becomes(name, row.fate, &without, &with);
            if is_time(first) {
                let needed = [("wcet", "c"), ("period", "t")];
                let others = needed.iter().filter(|(column, _)| *column != first).map(|(_, short)| *short);
                let names: Vec<String> =
                    others.map(String::from).chain([format!("{} (NS)", name.to_uppercase())]).collect();
                let cells: Vec<&str> = names.iter().map(|_| "5000").collect();
                let in_ns = of(&names.join(";"), &cells.join(";"));
                assert!(host_of(&in_ns).contains("\"5us\""), "{name} in ns: {}", in_ns.toml);
            }
        }
    }
    assert!(read > 25, "{read} names");
}

/// The example of the document is read as it stands there.
#[test]
fn the_example_of_a_table_of_tasks_is_read() {
    let (_, section) = DOCUMENT.split_once("\n## CSV").expect("the section");
    let example = section.split("```").nth(1).expect("an example").trim_start();
    let imported = import("csv", &[example], &[]);
    let host = imported.host();
    assert_eq!((host.tasks.len(), host.processors), (3, 4));
    imported.must_say(&["a smaller priority is taken as the more urgent one"]);
    imported.must_say(&["nothing says how many processors", "taken as 4"]);
}

#[test]
fn every_table_of_xl_is_in_the_document_and_read() {
    let rows = rows("xl");
    for line in lines(include_str!("formats/xl.txt")) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [versions, command, columns, header, row] = fields[..] else { panic!("{line}") };
        let words: Vec<&str> = command.split(' ').collect();
        let is_of =
            |row: &&Row| row.first.contains(&format!("`xl {}", words[0])) || row.second.contains(columns);
        assert!(rows.iter().any(|row| is_of(&row)), "xl {command} of Xen {versions} is in no row");
        let text = format!("{header}\n{row}\n");
        // A table of pools alone lists no domain.
        let domain = "Name                               ID Weight  Cap\n\
                      other                               2    256    0\n";
        let imported = import("xl", &[&text, domain], &["--processors", "4"]);
        let host = host_of(&imported);
        assert!(host.contains("web_1") || host.contains("Pool-0"), "xl {command} of Xen {versions}: {host}");
        for words in ["not understood", "a table that import does not read"] {
            assert!(!imported.says(&[words]), "xl {command} of Xen {versions}: {}", imported.messages);
        }
    }
}
