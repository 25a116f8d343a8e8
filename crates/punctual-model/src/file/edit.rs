//! A user's host file with other values: comments, order and everything else stay.

use punctual_sched::{Duration, UnitParams};
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::host::write::{document, to_toml, unit_params};
use super::load::parse;
use super::overrides::Overrides;
use super::quantity;
use crate::host::{Host, Parent};

/// The unit parameters that [`with_params`] writes.
const PARAMS: [&str; 4] = ["budget", "period", "priority", "affinity"];

/// The file `text` changed so that it is read as `after`, given that with its command line's changes it was
/// read as `before`; the two differ in parameters of vCPUs and of tasks in pools. Generated tasks that depend
/// on what has changed are spelled out. Where even that does not give `after`, the whole host is written
/// again, with everything spelled out.
pub fn with_params(text: &str, file_name: &str, before: &Host, after: &Host) -> String {
    let good = |text: &String| parse(text, file_name, &Overrides::default()).as_ref() == Ok(after);
    let ways = [false, true].into_iter().filter_map(|spell_out| edit(text, before, after, spell_out));
    ways.map(|document| document.to_string()).find(good).unwrap_or_else(|| to_toml(after))
}

/// The file with a budget for every domain that has tasks with deadlines, or a period and a network, and no
/// budget: the whole period, to start from, and the names of these domains. Domains with tasks but without a
/// period get one if periods are free. `None` if there is nothing to fill in.
pub fn with_budgets(text: &str, free_periods: bool) -> Option<(String, Vec<String>)> {
    let mut document: DocumentMut = text.parse().ok()?;
    let (mut filled, in_networks) = (Vec::new(), in_networks(&document));
    for (name, domain) in document.get_mut("domain")?.as_table_like_mut()?.iter_mut() {
        let is_in_network = in_networks.iter().any(|other| other == name.get());
        let wants = |domain: &dyn TableLike| {
            wants_budget(domain) || is_in_network && has_room(domain) && domain.get("period").is_some()
        };
        let Some(domain) = domain.as_table_like_mut().filter(|domain| wants(*domain)) else {
            continue;
        };
        if free_periods && domain.get("period").is_none() {
            domain.insert("period", toml_edit::value("10ms"));
            filled.push(name.to_string());
        }
        let period = domain.get("period").and_then(Item::as_str).map(str::to_string);
        if let Some(period) = period.filter(|_| domain.get("budget").is_none()) {
            // A budget cannot be a frequency.
            let is_frequency = quantity::duration(&period).is_err();
            let exact = quantity::period(&period).ok().filter(|_| is_frequency);
            domain.insert("budget", toml_edit::value(exact.map_or(period, |time| time.to_string())));
            filled.push(name.to_string());
        }
    }
    filled.dedup();
    (!filled.is_empty()).then(|| (document.to_string(), filled))
}

/// Of the domains that [`with_budgets`] looks at: how many have a period, and the names of those that have
/// none.
pub fn periods(text: &str) -> (usize, Vec<String>) {
    let document = text.parse::<DocumentMut>().ok();
    let domains = document.as_ref().and_then(|document| document.get("domain")?.as_table_like());
    let (mut with, mut without) = (0, Vec::new());
    for (name, domain) in domains.into_iter().flat_map(TableLike::iter) {
        match domain.as_table_like().filter(|domain| wants_budget(*domain)) {
            Some(domain) if domain.get("period").is_some() => with += 1,
            Some(_) => without.push(name.to_string()),
            None => {}
        }
    }
    (with, without)
}

/// Has the domain tasks with deadlines, and no place elsewhere for its budget?
fn wants_budget(domain: &dyn TableLike) -> bool {
    has_room(domain) && has_deadlines(domain)
}

/// Has the domain, which is in a pool, one budget for all its vCPUs, if it has any?
fn has_room(domain: &dyn TableLike) -> bool {
    let vcpus = domain.get("vcpu").and_then(Item::as_table_like);
    let has_own = |vcpu: &Item| {
        vcpu.as_table_like().is_none_or(|vcpu| vcpu.get("budget").is_some() || vcpu.get("period").is_some())
    };
    let is_one = vcpus.is_none_or(|vcpus| !vcpus.iter().any(|(_, vcpu)| has_own(vcpu)));
    domain.get("in").is_none() && (domain.get("vcpu").is_none() || vcpus.is_some()) && is_one
}

/// The domains that drive networks, or at which flows begin or end.
fn in_networks(document: &DocumentMut) -> Vec<String> {
    let tables = |key: &str| {
        let tables = document.get(key).and_then(Item::as_table_like).into_iter().flat_map(TableLike::iter);
        tables.filter_map(|(_, table)| table.as_table_like()).collect::<Vec<_>>()
    };
    let names = |tables: Vec<&dyn TableLike>, keys: &[&str]| {
        let name = |table: &dyn TableLike, key: &str| table.get(key)?.as_str().map(str::to_string);
        let all = tables.into_iter().flat_map(|table| keys.iter().map(move |key| name(table, key)));
        all.flatten().collect::<Vec<_>>()
    };
    [names(tables("network"), &["driver"]), names(tables("flow"), &["from", "to"])].concat()
}

fn has_deadlines(domain: &dyn TableLike) -> bool {
    let tasks = domain.get("task").and_then(Item::as_table_like);
    let hog = |task: &Item| task.get("hog").and_then(Item::as_bool).unwrap_or(false);
    domain.get("generate").is_some() || tasks.is_some_and(|tasks| tasks.iter().any(|(_, task)| !hog(task)))
}

/// The file with these values in `[machine.overheads]`, by their keys. `None` when `text` is no TOML or its
/// `machine` no table.
pub fn with_overheads(text: &str, overheads: &[(&str, Duration)]) -> Option<String> {
    with_durations(text, &["machine", "overheads"], overheads)
}

/// The file with these values in `[network.NAME.costs]`, by their keys. `None` when `text` is no TOML or
/// something on the way is no table.
pub fn with_network_costs(text: &str, network: &str, costs: &[(&str, Duration)]) -> Option<String> {
    with_durations(text, &["network", network, "costs"], costs)
}

fn with_durations(text: &str, path: &[&str], values: &[(&str, Duration)]) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    let mut is_inline = false;
    for (depth, name) in path.iter().enumerate() {
        // A table in braces cannot have a table with a header of its own in it; a table that holds only
        // other tables needs no header.
        let new = match is_inline {
            true => Item::Value(InlineTable::new().into()),
            false if depth + 1 < path.len() => toml_edit::table(),
            false => Item::Table(Table::new()),
        };
        // The name of published costs gives way to the costs.
        if table.get(name).is_some_and(Item::is_str) {
            table.remove(name);
        }
        let item = table.entry(name).or_insert(new);
        is_inline = item.is_inline_table();
        table = item.as_table_like_mut()?;
    }
    for (key, time) in values {
        set(table, key, time.to_string().into());
    }
    Some(document.to_string())
}

fn edit(text: &str, before: &Host, after: &Host, spell_out: bool) -> Option<DocumentMut> {
    let mut document: DocumentMut = text.parse().ok()?;
    edit_domains(&mut document, before, after)?;
    edit_pool_tasks(&mut document, before, after)?;
    if spell_out {
        spell_out_tasks(&mut document, after)?;
    }
    Some(document)
}

/// Sets the parameters of vCPUs that differ.
fn edit_domains(document: &mut DocumentMut, before: &Host, after: &Host) -> Option<()> {
    for domain in &after.domains {
        let vcpus = domain.vcpus.clone();
        let table = table_at(document.as_table_mut(), &["domain", domain.name.as_str()])?;
        for key in PARAMS {
            let values = |host: &Host| -> Vec<Option<Value>> {
                host.vcpus[vcpus.clone()].iter().map(|v| param(host, domain.parent, &v.params, key)).collect()
            };
            let (old, new) = (values(before), values(after));
            if !old.iter().map(show).eq(new.iter().map(show)) {
                set_of_vcpus(table, key, new);
            }
        }
    }
    Some(())
}

/// Sets the parameters of tasks in pools that differ. `None` when a task elsewhere differs.
fn edit_pool_tasks(document: &mut DocumentMut, before: &Host, after: &Host) -> Option<()> {
    for (old, new) in before.tasks.iter().zip(&after.tasks).filter(|(old, new)| old.params != new.params) {
        let Parent::Pool(pool) = new.parent else { return None };
        let path = ["pool", after.pools[pool.0].name.as_str(), "task", new.name.as_str()];
        let Some(table) = table_at(document.as_table_mut(), &path) else { continue };
        for key in PARAMS {
            let old = param(before, new.parent, &old.params, key);
            let new = param(after, new.parent, &new.params, key);
            let Some(new) = new.filter(|new| show(&Some(new.clone())) != show(&old)) else { continue };
            match key {
                "budget" | "period" => {
                    let server = table.entry("server").or_insert(InlineTable::new().into());
                    set(server.as_table_like_mut()?, key, new);
                }
                _ => set(table, key, new),
            }
        }
    }
    Some(())
}

/// A unit parameter as it stands in the file.
fn param(host: &Host, parent: Parent, params: &UnitParams, key: &str) -> Option<Value> {
    unit_params(host, parent, params).into_iter().find(|(name, _)| *name == key).map(|(_, value)| value)
}

fn show(value: &Option<Value>) -> Option<String> {
    value.as_ref().map(ToString::to_string)
}

/// One value for the domain where its vCPUs agree, otherwise one for each.
fn set_of_vcpus(domain: &mut dyn TableLike, key: &str, values: Vec<Option<Value>>) {
    let agree = values.iter().all(|value| show(value) == show(&values[0]));
    for (n, value) in values.iter().enumerate() {
        if agree {
            let own = domain.get_mut("vcpu").and_then(|vcpus| vcpus.get_mut(n.to_string()));
            if let Some(own) = own.and_then(Item::as_table_like_mut) {
                own.remove(key);
            }
        } else if let Some(value) = value.clone() {
            let vcpus = domain.entry("vcpu").or_insert(implicit());
            let Some(vcpus) = vcpus.as_table_like_mut() else { continue };
            let own = vcpus.entry(&n.to_string()).or_insert(InlineTable::new().into());
            if let Some(own) = own.as_table_like_mut() {
                set(own, key, value);
            }
        }
    }
    // What each vCPU has of its own the domain's value is nobody's; a comment at it is somebody's.
    let all_have = !agree && values.iter().all(Option::is_some);
    if all_have && domain.get(key).is_some_and(|value| !value.to_string().contains('#')) {
        domain.remove(key);
    }
    if agree && let Some(Some(value)) = values.into_iter().next() {
        set(domain, key, value);
    }
}

/// A table without a header of its own.
fn implicit() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    table.set_dotted(true);
    Item::Table(table)
}

/// Sets a value; what stands around it stays.
fn set(table: &mut dyn TableLike, key: &str, mut value: Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => {
            table.insert(key, Item::Value(value));
        }
    }
}

fn table_at<'d>(root: &'d mut dyn TableLike, path: &[&str]) -> Option<&'d mut dyn TableLike> {
    match path {
        [] => Some(root),
        [first, rest @ ..] => table_at(root.get_mut(first)?.as_table_like_mut()?, rest),
    }
}

/// Replaces every `generate` by the tasks that it generates, and every table with `copies` by one for each
/// of them.
fn spell_out_tasks(edited: &mut DocumentMut, host: &Host) -> Option<()> {
    let mut spelled = document(host);
    let pools = host.pools.iter().map(|pool| ["pool", pool.name.as_str()]);
    let domains = host.domains.iter().map(|domain| ["domain", domain.name.as_str()]);
    for path in pools.chain(domains) {
        let Some(table) = table_at(edited.as_table_mut(), &path) else { continue };
        let generates = table.remove("generate").is_some();
        let copied = take_copied(table);
        if !generates && copied.is_empty() {
            continue;
        }
        let Some(from) = table_at(spelled.as_table_mut(), &[path[0], path[1], "task"]) else { continue };
        let mut tasks = Table::new();
        tasks.set_implicit(true);
        let tasks = table.entry("task").or_insert(Item::Table(tasks)).as_table_like_mut()?;
        for (name, task) in from.iter() {
            // Copies need not be the last ones, so all others move behind them, each in its turn.
            let own = if copied.is_empty() { None } else { tasks.remove(name) };
            if tasks.get(name).is_none() {
                tasks.insert(name, own.unwrap_or_else(|| spelled_out(name, task, &copied)));
            }
        }
    }
    Some(())
}

/// Takes the tables of tasks with `copies` out of `parent`.
fn take_copied(parent: &mut dyn TableLike) -> Vec<(String, Item)> {
    let Some(tasks) = parent.get_mut("task").and_then(Item::as_table_like_mut) else { return Vec::new() };
    let copied = tasks.iter().filter(|(_, task)| task.get("copies").is_some());
    let names: Vec<String> = copied.map(|(name, _)| name.to_owned()).collect();
    names.into_iter().filter_map(|name| tasks.remove(&name).map(|task| (name, task))).collect()
}

/// The table of a task that was generated or copied. Its priority stays a rank where it was one: the ranks of
/// the other tasks depend on that.
fn spelled_out(name: &str, task: &Item, copied: &[(String, Item)]) -> Item {
    let mut task = task.clone();
    let table = name.rsplit_once('-').and_then(|(table, _)| copied.iter().find(|(name, _)| name == table));
    if table.is_none_or(|(_, table)| table.get("priority").is_none())
        && let Some(task) = task.as_table_like_mut()
    {
        task.remove("priority");
    }
    task
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_sched::{CpuId, CpuSet};

    fn read(text: &str) -> Host {
        parse(text, "host.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{}", e.render(false)))
    }

    /// The file after `change`, which must be read as the changed host.
    fn changed(text: &str, change: impl FnOnce(&mut Host)) -> String {
        let before = read(text);
        let mut after = before.clone();
        change(&mut after);
        let file = with_params(text, "host.toml", &before, &after);
        assert_eq!(read(&file), after, "{file}");
        file
    }

    const ONE: &str = "\
machine = { processors = 2 }
pool.rt = { policy = \"deferrable\" } # servers

[domain.a] # the first
budget = \"2ms\" # enough?
period = \"10ms\"
task.t = { period = \"20ms\", cost = \"1ms\" }
";

    #[test]
    fn comments_and_order_stay() {
        let file = changed(ONE, |host| host.vcpus[0].params.budget = Some(Duration::from_us(1_500)));
        assert_eq!(file, ONE.replace("2ms", "1500us"));
    }

    #[test]
    fn new_keys_are_added_to_the_domain() {
        let file = changed(ONE, |host| {
            let mut set = CpuSet::new(2);
            set.insert(CpuId(1));
            host.vcpus[0].params.affinity = Some(set);
            host.vcpus[0].params.priority = Some(3);
        });
        assert!(file.contains("priority = 3\naffinity = [1]\n") && file.contains("# enough?"), "{file}");
    }

    #[test]
    fn vcpus_that_differ_get_parameters_of_their_own_and_lose_them_when_they_agree() {
        let text = ONE.replace("# enough?", "\nvcpus = 2");
        let file = changed(&text, |host| host.vcpus[1].params.budget = Some(Duration::from_ms(3)));
        assert!(file.contains("3ms"), "{file}");
        let again = changed(&file, |host| {
            host.vcpus.iter_mut().for_each(|vcpu| vcpu.params.budget = Some(Duration::from_ms(4)));
        });
        assert_eq!(again.matches("budget = \"4ms\"").count(), 1, "{again}");
    }

    #[test]
    fn tasks_of_a_pool_get_a_server() {
        let text = "machine.processors = 1\npool.rt.policy = \"periodic\"\n\
                    pool.rt.task.t = { period = \"20ms\", cost = \"1ms\" } # alone\n";
        let file = changed(text, |host| host.tasks[0].params.period = Some(Duration::from_ms(10)));
        assert!(file.contains("server = { period = \"10ms\" }") && file.contains("# alone"), "{file}");
    }

    #[test]
    fn generated_tasks_that_depend_on_the_budget_are_spelled_out() {
        let text = ONE.replace(
            "task.t = { period = \"20ms\", cost = \"1ms\" }",
            "generate = { recipe = \"rt-xen\", tasks = 2, load = \"50%\" }",
        );
        let file = changed(&text, |host| host.vcpus[0].params.budget = Some(Duration::from_ms(5)));
        assert!(file.contains("[domain.a.task.t2]") && file.contains("# servers"), "{file}");
        assert!(!file.contains("generate"), "{file}");
    }

    #[test]
    fn copies_that_get_parameters_of_their_own_are_spelled_out_in_their_place() {
        let text = "# mine\n[machine]\nprocessors = 1\n\n[pool.rt]\npolicy = \"periodic\"\n\n\
                    [pool.rt.task.sv] # samples\nperiod = \"250Hz\"\ncost = \"100us\"\ncopies = 3\n\n\
                    [pool.rt.task.goose] # events\nperiod = \"10ms\"\ncost = \"1ms\"\n";
        let file = changed(text, |host| host.tasks[1].params.period = Some(Duration::from_ms(2)));
        assert!(file.contains("# mine") && file.contains("[pool.rt.task.goose] # events"), "{file}");
        assert!(file.contains("[pool.rt.task.sv-2]") && !file.contains("copies"), "{file}");
        let other = changed(text, |host| host.tasks[3].params.period = Some(Duration::from_ms(5)));
        assert!(other.contains("copies = 3") && other.contains("server = { period = \"5ms\" }"), "{other}");
    }

    #[test]
    fn copies_stay_one_table_where_only_the_domain_changes() {
        let text = ONE.replace("cost = \"1ms\" }", "cost = \"1us\", copies = 5, stagger = \"1ms\" }");
        let file = changed(&text, |host| host.vcpus[0].params.budget = Some(Duration::from_ms(3)));
        assert_eq!(file, text.replace("2ms", "3ms"));
    }

    #[test]
    fn a_domains_value_goes_when_each_vcpu_has_its_own_unless_a_comment_is_at_it() {
        let text = ONE.replace("# the first\n", "# the first\nvcpus = 2\n");
        let differ = |host: &mut Host| host.vcpus[0].params.budget = Some(Duration::from_ms(3));
        assert!(changed(&text, differ).contains("# enough?"));
        let file = changed(&text.replace(" # enough?", ""), differ);
        assert!(!file.contains("\nbudget ="), "{file}");
    }

    #[test]
    fn missing_budgets_are_filled_in_where_there_are_deadlines() {
        let without = ONE.replace("budget = \"2ms\" # enough?\n", "");
        let (filled, names) = with_budgets(&without, false).expect("something is missing");
        assert_eq!(names, ["a"]);
        assert_eq!(read(&filled).vcpus[0].params.budget, Some(Duration::from_ms(10)));
        assert_eq!(with_budgets(ONE, true), None);
        let neither = without.replace("period = \"10ms\"\n", "");
        assert_eq!(with_budgets(&neither, false), None);
        assert!(with_budgets(&neither, true).is_some());
        assert_eq!((periods(ONE).0, periods(&neither)), (1, (0, vec!["a".to_string()])));
        let (often, _) = with_budgets(&without.replace("\"10ms\"", "\"100Hz\""), false).expect("a budget");
        assert_eq!(read(&often).vcpus[0].params.budget, Some(Duration::from_ms(10)));
        let hog = without.replace("{ period = \"20ms\", cost = \"1ms\" }", "{ hog = true }");
        assert_eq!(with_budgets(&hog, true), None);
    }

    #[test]
    fn what_the_command_line_changed_is_written_out_in_full() {
        let overrides = Overrides { policy: Some("periodic".into()), ..Overrides::default() };
        let before = parse(ONE, "host.toml", &overrides).expect("valid");
        let file = with_params(ONE, "host.toml", &before, &before);
        assert_eq!(read(&file), before);
    }

    fn calibrated(text: &str) -> String {
        let costs = [("decision", Duration::from_ns(850)), ("context_switch", Duration::from_us(3))];
        with_overheads(text, &costs).expect("a table")
    }

    #[test]
    fn overheads_are_replaced_and_comments_stay() {
        let text = "# the machine\n[machine]\nprocessors = 2 # two\n\n# measured\n[machine.overheads]\n\
                    context_switch = \"1us\" # old\nmigration = \"5us\"\n\n[pool.p]\n";
        let expected = "# the machine\n[machine]\nprocessors = 2 # two\n\n# measured\n[machine.overheads]\n\
                        context_switch = \"3us\" # old\nmigration = \"5us\"\ndecision = \"850ns\"\n\n\
                        [pool.p]\n";
        assert_eq!(calibrated(text), expected);
    }

    #[test]
    fn overheads_are_added_where_there_are_none() {
        let added = calibrated("[machine]\nprocessors = 2\n\n[pool.p]\npolicy = \"rtds\"\n");
        let costs = "[machine.overheads]\ndecision = \"850ns\"\ncontext_switch = \"3us\"\n";
        assert!(added.contains(costs), "{added}");
        assert!(added.starts_with("[machine]\nprocessors = 2\n"), "{added}");
    }

    #[test]
    fn overheads_replace_the_name_of_published_ones() {
        let added = calibrated("[machine]\nprocessors = 2\noverheads = \"xen-4.0\"\n");
        assert_eq!(
            added,
            "[machine]\nprocessors = 2\n\n[machine.overheads]\ndecision = \"850ns\"\n\
             context_switch = \"3us\"\n"
        );
        let inline = calibrated("machine = { processors = 2, overheads = \"xen-4.0\" }\n");
        let document: DocumentMut = inline.parse().expect("TOML still");
        assert_eq!(document["machine"]["overheads"]["decision"].as_str(), Some("850ns"), "{inline}");
    }

    #[test]
    fn costs_of_a_network_are_set_and_comments_stay() {
        let costs = [("tx", Duration::from_ns(300)), ("rx", Duration::from_ns(400))];
        let set = |text: &str| with_network_costs(text, "lan", &costs).expect("tables");
        let text =
            "[network.lan]\ndriver = \"d\" # who\n\n[network.lan.costs]\ntx = \"2us\" # old\n\n[flow.f]\n";
        let expected = text.replace("\"2us\" # old\n", "\"300ns\" # old\nrx = \"400ns\"\n");
        assert_eq!(set(text), expected);
        let without = "[network.lan]\ndriver = \"d\"\n\n[flow.f]\n";
        let added = set(without);
        assert!(added.contains("\n[network.lan.costs]\ntx = \"300ns\"\nrx = \"400ns\"\n"), "{added}");
        assert!(added.starts_with("[network.lan]\ndriver = \"d\"\n"), "{added}");
        let inline = set("network = { lan = { driver = \"d\" } }\n");
        let document: DocumentMut = inline.parse().expect("TOML still");
        assert_eq!(document["network"]["lan"]["costs"]["rx"].as_str(), Some("400ns"), "{inline}");
    }

    #[test]
    fn tables_in_one_line_stay_in_one_line() {
        let inline = calibrated("machine = { processors = 2, overheads = { decision = \"1us\" } }\n");
        assert_eq!(
            inline,
            "machine = { processors = 2, overheads = { decision = \"850ns\" , context_switch = \"3us\" } }\n"
        );
        let dotted = calibrated("machine.processors = 2\nmachine.overheads.decision = \"1us\"\n");
        assert!(dotted.contains("machine.overheads.decision = \"850ns\"\n"), "{dotted}");
        for text in [inline, dotted, calibrated("machine = { processors = 2 }\n")] {
            let document: DocumentMut = text.parse().expect("TOML still");
            assert_eq!(document["machine"]["overheads"]["context_switch"].as_str(), Some("3us"), "{text}");
        }
    }
}
